package ratelimit_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// hammer runs f from several goroutines at once, each with its number.
func hammer(f func(g int)) {
	var wg sync.WaitGroup
	for g := range max(4, runtime.GOMAXPROCS(0)) {
		wg.Go(func() { f(g) })
	}
	wg.Wait()
}

// At one instant no more is taken than there is, and all of it.
func TestTakeConcurrentSafe(t *testing.T) {
	t.Parallel()
	b, now := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 1000}), time.Now()
	var total atomic.Int64
	hammer(func(g int) {
		n := g%3 + 1
		for range 2000 {
			if _, ok := b.Take(now, n); ok {
				total.Add(int64(n))
			}
		}
	})
	left := 0
	for {
		if _, ok := b.Take(now, 1); !ok {
			break
		}
		left++
	}
	assert.Equal(t, int64(1000), total.Load()+int64(left))
	assert.Less(t, left, 3, "all but what the larger costs did not fit into")
}

// In a bubble no time passes while somebody runs: tokens only move around. No change
// of the limit and no refund makes any.
func TestEverythingConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const initial = 5000
		b, now := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: initial}), time.Now()
		limits := []ratelimit.Rate{ratelimit.PerSecond(1000), ratelimit.PerSecond(math.Pi), ratelimit.PerSecond(1e9), ratelimit.Every(time.Hour)}
		var kept atomic.Int64
		ahead := make([][]ratelimit.Reservation, 64)
		hammer(func(g int) {
			for i := range 1000 {
				switch n := 1 + i%3; (i + g) % 7 {
				case 0, 1:
					if _, ok := b.Take(now, n); ok {
						kept.Add(int64(n))
					}
				case 2:
					if b.AllowN(n) {
						b.Refund(now, n)
					}
				case 3:
					r := b.Reserve(now, n)
					if r.OK() && r.Delay() == 0 {
						kept.Add(int64(n))
					} else if r.OK() {
						ahead[g] = append(ahead[g], r)
					}
				case 4:
					if len(ahead[g]) > 0 {
						ahead[g][0].Cancel(now)
						ahead[g] = ahead[g][1:]
					}
				case 5:
					if i%10 == 0 {
						assert.NoError(t, b.SetLimit(limits[i/10%len(limits)], initial))
					}
				default:
					assert.LessOrEqual(t, b.Tokens(now), float64(initial))
					b.Snapshot(now)
					b.Config()
				}
			}
		})
		for _, rs := range ahead {
			for i := range rs {
				rs[i].Cancel(now)
			}
		}
		require.NoError(t, b.SetLimit(ratelimit.Every(time.Second), initial))
		left := 0
		for b.Allow() {
			left++
		}
		// A change of the limit rounds down to a unit, which at 1e9/s is a token.
		assert.LessOrEqual(t, kept.Load()+int64(left), int64(initial))
		assert.GreaterOrEqual(t, kept.Load()+int64(left), int64(initial-1000), "tokens do not just disappear")
		wait, ok := b.Take(now, initial)
		assert.False(t, ok)
		assert.InDelta(t, initial, wait.Seconds(), 1, "nothing is owed")
	})
}

// The origin changes every second or so at this rate; meanwhile nothing is lost or
// won.
func TestMoveConcurrentSafe(t *testing.T) {
	t.Parallel()
	const burst = math.MaxInt32
	b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(burst * 1e9), Burst: burst, Initial: ratelimit.StartEmpty}), time.Now()
	var total, clock atomic.Int64
	hammer(func(int) {
		for range 5000 {
			at := clock.Add(int64(100 * ms))
			if _, ok := b.Take(start.Add(time.Duration(at)), burst); ok {
				total.Add(1)
			}
		}
	})
	// A full bucket each time, but for those whose time was overtaken.
	steps := clock.Load() / int64(100*ms)
	assert.LessOrEqual(t, total.Load(), steps)
	assert.Greater(t, total.Load(), steps/4)
	_, ok := b.Take(start.Add(time.Duration(clock.Load())+1), burst)
	assert.True(t, ok)
	_, ok = b.Take(start.Add(time.Duration(clock.Load())+1), 1)
	assert.False(t, ok)
}

// Reservations made at one instant by many are those that one would have got.
func TestReserveConcurrentSafe(t *testing.T) {
	t.Parallel()
	b, now := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 10}), time.Now()
	_, ok := b.Take(now.Add(time.Second), 10) // the bucket is empty then
	require.True(t, ok)
	var mu sync.Mutex
	var delays []time.Duration
	hammer(func(int) {
		for range 500 {
			r := b.Reserve(now.Add(time.Second), 1)
			assert.True(t, r.OK())
			mu.Lock()
			delays = append(delays, r.Delay())
			mu.Unlock()
		}
	})
	slices.Sort(delays)
	for i, d := range delays {
		require.Equal(t, time.Duration(i+1)*ms, d)
	}
}

func TestWaitConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 1, Initial: ratelimit.StartEmpty, MaxWaiters: 300}), time.Now()
		var mu sync.Mutex
		var released []time.Duration
		var canceled int
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 { // gives up somewhere in the queue
					time.AfterFunc(time.Duration(i)*7*ms+1, cancel)
				}
				err := b.Wait(ctx, 1)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					canceled++
					return
				}
				released = append(released, time.Since(start))
			})
			time.Sleep(ms)
		}
		wg.Wait()
		assert.Len(t, released, 300-canceled)
		assert.Positive(t, canceled)
		slices.Sort(released)
		for i := range released[1:] {
			require.GreaterOrEqual(t, released[i+1]-released[i], 10*ms)
		}
		assert.InDelta(t, 1, b.Tokens(time.Now().Add(time.Second)), 0, "nothing stays reserved")
	})
}
