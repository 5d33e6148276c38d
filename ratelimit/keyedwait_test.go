package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// visits notes who was let in when, and who was not.
type visits struct {
	sync.WaitGroup

	start time.Time
	mu    sync.Mutex
	in    []string
	out   []string
}

func (v *visits) visit(name string, wait func() error) {
	v.Go(func() {
		err := wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		line := fmt.Sprintf("%s %s", name, time.Since(v.start))
		switch re, ok := errors.AsType[*policy.RejectedError](err); {
		case ok:
			v.out = append(v.out, fmt.Sprintf("%s %s %s", line, re.Reason, re.RetryAfter))
		case err != nil:
			v.out = append(v.out, line+" "+err.Error())
		default:
			v.in = append(v.in, line)
		}
	})
	synctest.Wait()
}

// results returns who was let in so far, and who was not.
func (v *visits) results() (in, out []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.in), slices.Clone(v.out)
}

func TestKeyedWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 2, MaxWait: 5 * time.Second, MaxWaiters: 5})
		v := &visits{start: time.Now()}
		wait := func(key string, n int) func() error {
			return func() error { return b.Wait(t.Context(), key, n) }
		}
		within := func(d time.Duration, key string, n int) func() error {
			return func() error {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				return b.Wait(ctx, key, n)
			}
		}
		v.visit("a1", wait("a", 2))
		v.visit("a2", wait("a", 2))                    // at 2 s
		v.visit("a3", wait("a", 1))                    // at 3 s
		v.visit("b1", wait("b", 2))                    // another key: at once
		v.visit("b2", wait("b", 1))                    // at 1 s
		v.visit("big", wait("c", 3))                   // never
		v.visit("none", wait("a", 0))                  // needs nothing
		v.visit("late", within(4*time.Second, "a", 1)) // would come with the deadline
		v.visit("long", wait("a", 2))                  // 5 s: just allowed
		v.visit("longer", wait("a", 1))                // 6 s
		v.visit("full", wait("b", 1))                  // the last place
		v.visit("fuller", wait("b", 1))
		in, out := v.results()
		assert.Equal(t, []string{"a1 0s", "b1 0s", "none 0s"}, in)
		assert.Equal(t, []string{
			"big 0s cost " + policy.Never.String(), "late 0s deadline 4s", "longer 0s wait 1s", "fuller 0s waiters 1s",
		}, out)
		v.Wait()
		assert.ElementsMatch(t, []string{"a1 0s", "b1 0s", "none 0s", "b2 1s", "a2 2s", "full 2s", "a3 3s", "long 5s"}, v.in)
		assert.Len(t, v.out, 4)
	})
}

// A wait that is refused takes nothing, and can be told from one that is cut short.
func TestCaseB12KeyedDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1, MaxWait: time.Minute})
		start := time.Now()
		require.True(t, b.Allow("a"))
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		err := b.Wait(ctx, "a", 1)
		assert.Equal(t, start, time.Now(), "at once")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, policy.ErrRejected)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		cancel()
		err = b.Wait(ctx, "a", 1)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, policy.ErrRejected)
		time.Sleep(time.Second)
		assert.True(t, b.Allow("a"))
	})
}

// Whoever gives up makes way for those behind, and takes nothing along.
func TestKeyedWaitersMoveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 4, MaxWait: time.Minute})
		require.True(t, b.AllowN("a", 4))
		v := &visits{start: time.Now()}
		ctx, cancel := context.WithCancelCause(t.Context())
		v.visit("head", func() error { return b.Wait(ctx, "a", 4) })
		v.visit("second", func() error { return b.Wait(t.Context(), "a", 1) })
		v.visit("third", func() error { return b.Wait(t.Context(), "a", 2) })
		time.Sleep(1500 * ms)
		in, _ := v.results()
		assert.Empty(t, in, "nobody overtakes the head")
		cancel(errors.New("gone"))
		v.Wait()
		assert.Equal(t, []string{"head 1.5s context canceled: gone"}, v.out)
		assert.Equal(t, []string{"second 1.5s", "third 3s"}, v.in)
		assert.InDelta(t, 0, b.Tokens(time.Now(), "a"), 0)
	})
}

// Tokens that come back, or a limit that is raised, let waiters in; one that is lowered
// sends those away who cannot wait for so long.
func TestKeyedWaitersFollowTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Minute), Burst: 2, MaxWait: 5 * time.Minute})
		for _, key := range []string{"a", "b", "c"} {
			require.True(t, b.AllowN(key, 2))
		}
		v := &visits{start: time.Now()}
		for _, name := range []string{"a", "b", "c"} {
			v.visit(name+"1", func() error { return b.Wait(t.Context(), name, 1) })
			v.visit(name+"2", func() error { return b.Wait(t.Context(), name, 2) })
		}
		b.Refund(time.Now(), "a", 1)
		require.NoError(t, b.SetException("b", ratelimit.Limit{Rate: ratelimit.PerSecond(1), Burst: 10}))
		time.Sleep(time.Second)
		require.NoError(t, b.SetLimit(ratelimit.Every(time.Minute), 1))
		v.Wait()
		assert.Equal(t, []string{"a1 0s", "b1 1s", "b2 3s", "c1 1m0s"}, v.in)
		slices.Sort(v.out)
		assert.Equal(t, []string{"a2 1s cost " + policy.Never.String(), "c2 1s cost " + policy.Never.String()}, v.out)
	})
}

func TestKeyedGateWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{enter: func() error { return nil }}
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1, MaxWait: 2 * time.Second, MaxWaiters: 1})
		p := newPipeline(t, b, d)
		ctx := policy.WithCall(t.Context(), policy.Call{Key: "a"})
		start := time.Now()
		for range 2 {
			_, err := policy.Do(ctx, p, func(context.Context) (int, error) { time.Sleep(10 * ms); return 1, nil })
			require.NoError(t, err)
		}
		assert.Equal(t, time.Second+10*ms, time.Since(start))
		assert.Equal(t, 20*ms, p.Snapshot().Latency.Sum, "the wait is not the dependency's time")

		d.enter = refuse
		time.Sleep(10 * ms)
		_, err := policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, errShut)
		assert.InDelta(t, 1, b.Tokens(time.Now(), "a"), 0, "what was waited for is given back")
		d.enter = func() error { return nil }

		require.True(t, b.Allow("a"))
		v := &visits{start: time.Now()}
		v.visit("first", func() error { _, err := policy.Do(ctx, p, succeed); return err })
		v.visit("second", func() error { _, err := policy.Do(ctx, p, succeed); return err })
		v.Wait()
		assert.Equal(t, []string{"first 1s"}, v.in)
		assert.Equal(t, []string{"second 0s waiters 1s"}, v.out)
		_, err = policy.Do(policy.WithCall(ctx, policy.Call{Key: "a", Cost: 2}), p, succeed)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		require.NoError(t, b.SetLimit(ratelimit.Every(time.Minute), 1))
		_, err = policy.Do(ctx, p, succeed)
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok)
		assert.Equal(t, policy.ReasonWait, re.Reason)
		assert.Equal(t, 58*time.Second, re.RetryAfter, "from then on the wait is short enough")
	})
}

// In shadow mode nobody waits.
func TestKeyedShadowDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1, MaxWait: time.Minute, Shadow: true})
		start := time.Now()
		for range 3 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
		}
		assert.Equal(t, start, time.Now())
		assert.Equal(t, uint64(2), p.Snapshot().Policies[0].Rejected[policy.ReasonRate])
	})
}

// The limiter of one key is that key's, whatever the call says.
func TestKeyedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Name: "reports", Rate: ratelimit.PerSecond(2), Burst: 2, MaxWait: time.Second})
		l := b.For("yearly")
		p := newPipeline(t, l)
		_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: "other"}), p, succeed)
		require.NoError(t, err)
		assert.InDelta(t, 1, b.Tokens(time.Now(), "yearly"), 0)
		assert.Equal(t, &policy.LimiterSnapshot{Tokens: 1, Burst: 2, Rate: 2, MaxWaiters: 100}, limiterOfKind(t, p, "keyed"))

		r := l.Reserve(time.Now(), 1)
		assert.True(t, r.OK())
		r.Cancel(time.Now()) // without a delay, it does nothing
		r = l.Reserve(time.Now(), 1)
		assert.False(t, r.OK())
		assert.Equal(t, 500*ms, r.Delay())
		r.Cancel(time.Now())
		assert.InDelta(t, 0, b.Tokens(time.Now(), "yearly"), 0)

		start := time.Now()
		require.NoError(t, l.Wait(t.Context(), 1))
		assert.Equal(t, 500*ms, time.Since(start))
		require.NoError(t, l.SetRate(ratelimit.PerSecond(100)))
		wait, ok := l.Take(time.Now(), 1)
		assert.False(t, ok)
		assert.Equal(t, 10*ms, wait)
		assert.Equal(t, map[string]ratelimit.Limit{"yearly": {Rate: ratelimit.PerSecond(100), Burst: 2}}, b.Config().Exceptions)
		assert.NotEmpty(t, keyedFaults(t, l.SetRate(ratelimit.PerSecond(-1))))
	})
}

func limiterOfKind(t *testing.T, p *policy.Pipeline, kind string) *policy.LimiterSnapshot {
	t.Helper()
	for _, ps := range p.Snapshot().Policies {
		if ps.Kind == kind {
			require.NotNil(t, ps.Limiter)
			return ps.Limiter
		}
	}
	require.Fail(t, "no "+kind)
	return nil
}

// However callers come, wait and give up: each key keeps to its limit, those of one key
// are let in in order, nobody waits for longer than is allowed, and all that is allowed
// is used.
func TestPropKeyedWait(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct {
			at, patience time.Duration
			key          string
			n            int
			in, out      time.Duration
		}
		const interval = 100 * ms
		burst := rapid.IntRange(1, 4).Draw(rt, "burst")
		maxWait := time.Duration(rapid.IntRange(1, 20).Draw(rt, "wait")) * 50 * ms
		callers := make([]*caller, rapid.IntRange(1, 40).Draw(rt, "callers"))
		at := time.Duration(0)
		for i := range callers {
			at += time.Duration(rapid.IntRange(0, 150).Draw(rt, "step"))*ms + 1 // distinct moments
			callers[i] = &caller{
				at: at, n: rapid.IntRange(1, burst).Draw(rt, "n"), key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"),
				patience: time.Duration(rapid.IntRange(0, 2000).Draw(rt, "patience")) * ms,
			}
		}
		synctest.Test(t, func(t *testing.T) {
			b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Every(interval), Burst: burst, MaxWait: maxWait, MaxWaiters: 1000, TTL: time.Second})
			start := time.Now()
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(c.at)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if c.patience < 1000*ms {
						defer time.AfterFunc(c.patience, cancel).Stop()
					}
					c.in, c.out = -1, -1
					if err := b.Wait(ctx, c.key, c.n); err != nil {
						c.out = time.Since(start)
					} else {
						c.in = time.Since(start)
					}
				})
			}
			wg.Wait()
		})
		for _, key := range []string{"a", "b", "c"} {
			var in []*caller
			for _, c := range callers {
				if c.key == key && c.in >= 0 {
					in = append(in, c)
				}
				require.LessOrEqual(rt, max(c.in, c.out)-c.at, maxWait)
			}
			require.True(rt, slices.IsSortedFunc(in, func(a, b *caller) int { return int(a.in - b.in) }), "in order")
			for i := range in {
				sum := 0
				for _, c := range in[i:] {
					sum += c.n
					require.LessOrEqual(rt, float64(sum), float64(burst)+float64(c.in-in[i].in)/float64(interval)+1e-6)
				}
			}
		}
	})
}

func TestKeyedWaitConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(100), Burst: 1, MaxWait: time.Second, MaxWaiters: 50})
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7+1)*50*ms)
				defer cancel()
				if i%3 == 0 {
					time.AfterFunc(time.Duration(i)*ms/3, cancel)
				}
				if b.Wait(ctx, string(rune('a'+i%5)), 1) == nil && i%4 == 0 {
					b.Refund(time.Now(), string(rune('a'+i%5)), 1)
				}
			})
			if i%10 == 0 {
				time.Sleep(ms)
			}
		}
		wg.Wait()
		time.Sleep(time.Second)
		for key := range 5 {
			assert.InDelta(t, 1, b.Tokens(time.Now(), string(rune('a'+key))), 0, "nothing is lost")
		}
	})
}
