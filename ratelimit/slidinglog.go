package ratelimit

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// logBooks is the algorithm of an exact [Sliding]: a log of what was taken in the last
// window, and behind it, in the same row, what is booked.
type logBooks struct {
	limit  atomic.Int64 // changes under line.mu
	window int64        // under line.mu, as all that follows but shut

	// shut is a time before which no token comes free, or 0 when that is not known.
	// It is 0 while the books are open.
	shut atomic.Int64

	// The log is entries[head:booked], in order of time. sum is what it holds. latest
	// is the latest time at which something was taken, and gone that of the latest
	// entry which has left the log.
	entries           []logEntry
	head, booked      int
	sum, latest, gone int64

	// The future is entries[booked:]. Seen from its end the window begins at entry
	// low, and holds ahead.
	low    int
	ahead  int64
	marked struct {
		length, low int
		ahead       int64
	}
}

type logEntry struct{ at, n int64 }

func newLogBooks(limit, window int64) *logBooks {
	b := &logBooks{window: window, latest: -1 << 63, gone: -1 << 63}
	b.limit.Store(limit)
	return b
}

func (b *logBooks) try(at, n int64) (time.Duration, verdict) { return b.look(at, n) }

func (b *logBooks) look(at, n int64) (time.Duration, verdict) {
	if n > b.limit.Load() {
		return policy.Never, tooBig
	}
	if shut := b.shut.Load(); n == 1 && at < shut {
		return delayFrom(at, shut), short
	}
	return 0, busy
}

func (b *logBooks) giveBack(int64, int64, int64) bool { return false }

func (b *logBooks) open() { b.shut.Store(0) }

func (b *logBooks) close() {
	if when := b.next(b.latest, 1); when > b.latest {
		b.shut.Store(when)
	}
}

func (b *logBooks) rebase(int64) bool { return false }

func (b *logBooks) most() int64 { return b.limit.Load() }

func (b *logBooks) next(at, n int64) int64 {
	now := max(at, b.latest)
	when, sum, left := now, b.ahead, b.limit.Load()-n
	for i := b.low; i < len(b.entries); i++ {
		e := b.entries[i]
		if end := addSat(e.at, b.window); end > when {
			if sum <= left {
				break
			}
			when = end
		}
		sum -= e.n
	}
	if when == now {
		return at
	}
	return when
}

func (b *logBooks) book(when, n int64, _ bool) {
	for b.low < len(b.entries) && addSat(b.entries[b.low].at, b.window) <= when {
		b.ahead -= b.entries[b.low].n
		b.low++
	}
	b.entries = append(b.entries, logEntry{when, n})
	b.ahead += n
}

func (b *logBooks) mark() {
	b.marked.length, b.marked.low, b.marked.ahead = len(b.entries), b.low, b.ahead
}

func (b *logBooks) back() {
	b.entries = b.entries[:b.marked.length]
	b.low, b.ahead = b.marked.low, b.marked.ahead
}

func (b *logBooks) rewind() {
	b.entries = b.entries[:b.booked]
	b.low, b.ahead = b.head, b.sum
}

func (b *logBooks) settle(_, _ int64) {
	e := b.entries[b.booked]
	b.booked++
	b.sum += e.n
	b.advance(e.at)
}

// advance forgets what is no longer in the window.
func (b *logBooks) advance(at int64) {
	b.latest = max(b.latest, at)
	for b.head < b.booked && addSat(b.entries[b.head].at, b.window) <= b.latest {
		b.sum -= b.entries[b.head].n
		b.gone = b.entries[b.head].at
		b.head++
	}
}

func (b *logBooks) spend(at, n int64) {
	b.advance(at)
	b.entries = b.entries[:b.booked]
	b.sum += n
	if b.booked > b.head && b.entries[b.booked-1].at == b.latest {
		b.entries[b.booked-1].n += n
		b.rewind()
		return
	}
	if len(b.entries) == cap(b.entries) && b.head >= (len(b.entries)+2)/3 {
		// As much is free at the beginning that moving the rest is cheap.
		b.entries = b.entries[:copy(b.entries, b.entries[b.head:])]
		b.head = 0
	}
	b.entries = append(b.entries, logEntry{b.latest, n})
	b.booked = len(b.entries)
	b.rewind()
}

// refund takes n tokens off the first entry that may be the one. Times that go back may
// make it an earlier one, which leaves the window sooner.
func (b *logBooks) refund(_, taken, n int64) {
	if taken <= b.gone {
		return // it has left the window
	}
	i, _ := slices.BinarySearchFunc(b.entries[b.head:b.booked], taken, func(e logEntry, at int64) int {
		return cmp.Compare(e.at, at)
	})
	if i += b.head; i < b.booked {
		e := &b.entries[i]
		n = min(n, e.n)
		e.n -= n
		b.sum -= n
		if e.n == 0 {
			b.entries = slices.Delete(b.entries[:b.booked], i, i+1)
			b.booked--
		}
	}
	b.rewind()
}

func (b *logBooks) setLimit(at, limit, window int64) {
	b.advance(at)
	b.limit.Store(limit)
	b.window = window
}

func (b *logBooks) describe(at int64, snapshot *policy.LimiterSnapshot) {
	limit, sum := b.limit.Load(), b.sum
	for i := b.head; i < b.booked && addSat(b.entries[i].at, b.window) <= max(at, b.latest); i++ {
		sum -= b.entries[i].n
	}
	snapshot.Tokens = float64(limit - sum)
	snapshot.Burst = float64(limit)
	snapshot.Rate = windowRate(int(limit), time.Duration(b.window)).perSecond()
}

// addSat returns a+b, at most never. b is not negative.
func addSat(a, b int64) int64 {
	if a > never-b {
		return never
	}
	return a + b
}

// mulDiv returns a*b/c, rounded down. a and b are not negative, c is above 0, and the
// result fits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // not negative
	q, _ := bits.Div64(hi, lo, uint64(c))      //nolint:gosec // above 0
	return int64(q)                            //nolint:gosec // fits
}

// mulDivUp is mulDiv, rounded up.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // not negative
	q, rest := bits.Div64(hi, lo, uint64(c))   //nolint:gosec // above 0
	if rest > 0 {
		q++
	}
	return int64(q) //nolint:gosec // fits
}
