package sharedlimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

var hourly = ratelimit.Every(time.Hour)

func TestSettingsValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s     sharedlimit.Settings
		field string
	}{
		{sharedlimit.Settings{Timeout: -1}, "Timeout"},
		{sharedlimit.Settings{Timeout: time.Hour}, "Timeout"},
		{sharedlimit.Settings{StandIn: 3}, "StandIn"},
		{sharedlimit.Settings{Nodes: -1}, "Nodes"},
		{sharedlimit.Settings{Nodes: 1, Heartbeat: time.Second}, "Heartbeat"},
		{sharedlimit.Settings{Heartbeat: time.Microsecond}, "Heartbeat"},
		{sharedlimit.Settings{LeaseFor: -1}, "LeaseFor"},
		{sharedlimit.Settings{MaxLease: -1, LeaseFor: 1}, "MaxLease"},
		{sharedlimit.Settings{MaxLease: 1}, "MaxLease"},
		{sharedlimit.Settings{LocalOnly: true, LeaseFor: 1}, "LeaseFor"},
		{sharedlimit.Settings{LocalOnly: true, StandIn: sharedlimit.Refuse}, "StandIn"},
		{sharedlimit.Settings{MaxKeys: -1}, "MaxKeys"},
		{sharedlimit.Settings{MaxWait: -1}, "MaxWait"},
		{sharedlimit.Settings{MaxWaiters: 1}, "MaxWaiters"},
		{sharedlimit.Settings{MaxWaiters: -1}, "MaxWaiters"},
	} {
		fault := &policy.ConfigError{}
		require.ErrorAs(t, tt.s.Validate("kind", "Settings."), &fault, "%+v", tt.s)
		assert.Equal(t, "Settings."+tt.field, fault.Field)
		assert.Equal(t, "kind", fault.Policy)
	}
	require.NoError(t, sharedlimit.Settings{}.Validate("kind", ""))

	_, err := sharedlimit.New("kind", "", nil, nil, sharedlimit.Settings{})
	require.ErrorContains(t, err, "Store")
	require.ErrorContains(t, err, "Limits")
	_, err = sharedlimit.New("kind", "", &fake{}, []sharedlimit.Limit{{}, {Burst: 1}, {Burst: 1, Rate: ratelimit.PerSecond(math.NaN())}}, sharedlimit.Settings{})
	for _, field := range []string{"Limits[0].Burst", "Limits[1].Rate", "Limits[2].Rate.Tokens"} {
		require.ErrorContains(t, err, field)
	}
}

// The first calls pay the timeout; then none does until a probe is answered. Each change is
// told once.
func TestModeFollowsTheStore(t *testing.T) {
	t.Parallel()
	for _, in := range []sharedlimit.StandIn{sharedlimit.LocalShare, sharedlimit.LetIn, sharedlimit.Refuse} {
		t.Run(in.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, ratelimit.PerSecond(100), 100)
				var out bytes.Buffer
				l := live(t, f, ratelimit.PerSecond(100), 100, sharedlimit.Settings{StandIn: in, Nodes: 4, Logger: slog.New(slog.NewTextHandler(&out, nil))})
				defer closed(t, l)
				var told []string
				pipe, err := policy.New("dep", l, policy.Observe(policy.ObserverFunc(func(e policy.Event) {
					if e.Kind == policy.EventStateChange {
						told = append(told, e.Change.From+">"+e.Change.To+" "+e.Change.Why)
					}
				})))
				require.NoError(t, err)
				call := func() (time.Duration, error) {
					start := time.Now()
					_, err := policy.Do(t.Context(), pipe, func(context.Context) (int, error) { return 0, nil })
					return time.Since(start), err
				}
				_, err = call()
				require.NoError(t, err)

				f.set(nil, time.Second)
				for i := range 5 {
					took, err := call()
					assert.Equal(t, 50*time.Millisecond, took, "call %d", i)
					assert.Equal(t, in == sharedlimit.Refuse, err != nil)
				}
				asked, passed := f.asked(), 0
				for range 100 {
					took, err := call()
					assert.Zero(t, took)
					if err == nil {
						passed++
					}
				}
				assert.Equal(t, asked, f.asked())
				// Of a share of 25 the five slow calls took five, in the time in which
				// four come.
				want := map[sharedlimit.StandIn]int{sharedlimit.LocalShare: 24, sharedlimit.LetIn: 100, sharedlimit.Refuse: 0}
				assert.Equal(t, want[in], passed)
				assert.Equal(t, in.String(), shared(l).Mode)

				time.Sleep(10 * time.Second)
				assert.Equal(t, in.String(), shared(l).Mode)
				f.set(nil, 0)
				time.Sleep(350 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, policy.SharedModeShared, shared(l).Mode, "without any call")
				_, err = call()
				require.NoError(t, err)
				assert.Equal(t, []string{"shared>" + in.String() + " errors", in.String() + ">shared probe"}, told)
				assert.Equal(t, 2, strings.Count(out.String(), "shared limit changed its mode"))
			})
		})
	}
}

// After an outage the store is told what can be there: nothing is let through twice.
func TestReturnWithoutABurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, hourly, 100)
		l := live(t, f, hourly, 100, sharedlimit.Settings{Nodes: 4})
		defer closed(t, l)
		f.set(errDown, 0)
		passed := 0
		for range 50 {
			if allow(l) {
				passed++
			}
		}
		assert.Equal(t, 25, passed)
		f.set(nil, 0)
		time.Sleep(time.Second)
		require.Equal(t, policy.SharedModeShared, shared(l).Mode)
		assert.False(t, allow(l), "the bucket of the store was full")
		assert.NoError(t, l.Wait(key("new"), 1), "a key that was not seen has all of its tokens")
		f.mu.Lock()
		assert.Equal(t, []int{-1}, f.takes[len(f.takes)-1].Caps)
		f.mu.Unlock()
	})
}

func TestCallersWhoLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, hourly, 100)
		l := live(t, f, hourly, 100, sharedlimit.Settings{Nodes: 1})
		defer closed(t, l)
		f.set(nil, time.Second)
		cause := errors.New("gone")
		for range 20 { // those who leave say nothing of the store
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
			require.ErrorIs(t, l.Wait(ctx, 1), cause)
		}
		assert.Equal(t, policy.SharedModeShared, shared(l).Mode)
		assert.Zero(t, shared(l).Errors)
		for range 5 { // deadlines that are shorter than the timeout do
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			require.ErrorIs(t, l.Wait(ctx, 1), context.DeadlineExceeded)
			cancel()
		}
		assert.Equal(t, policy.SharedModeLocal, shared(l).Mode)
	})
}

// A token that is given back is used by the next call with its key, as long as it matters.
func TestCreditIsForTheKeyAndForATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, hourly, 2)
		l := live(t, f, hourly, 2, sharedlimit.Settings{Nodes: 1})
		defer closed(t, l)
		ann := &policy.Call{Key: "ann"}
		now := time.Now()
		_, ok := l.TakeFor(t.Context(), now, ann, 2)
		require.True(t, ok)
		l.RefundFor(t.Context(), now, ann, 1)
		require.NoError(t, l.Wait(key("bob"), 2))
		asked := f.asked()
		require.NoError(t, l.Wait(key("ann"), 1))
		assert.Equal(t, asked, f.asked())
		require.Error(t, l.Wait(key("ann"), 1))
		assert.EqualValues(t, 1, shared(l).LeaseHits)

		l.RefundFor(t.Context(), now, ann, 1)
		l.RefundFor(t.Context(), now, ann, -1)
		time.Sleep(2 * time.Hour) // by then the tokens are there in any case
		l.RefundFor(t.Context(), now, ann, 2)
		require.NoError(t, l.Wait(key("ann"), 2))
		require.Error(t, l.Wait(key("ann"), 1))
	})
}

// In any stretch of time no more is let in than the limit lets through and the leases hold.
func TestLeaseBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.IntRange(50, 2000).Draw(rt, "rate")
		burst := rapid.IntRange(4, 400).Draw(rt, "burst")
		leaseFor := time.Duration(rapid.IntRange(20, 400).Draw(rt, "lease")) * time.Millisecond
		nodes := rapid.IntRange(1, 3).Draw(rt, "nodes")
		steps := rapid.SliceOfN(rapid.IntRange(0, 30), 20, 200).Draw(rt, "calls per 5 ms")
		var admitted []time.Duration
		var most int
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, ratelimit.PerSecond(float64(rate)), burst)
			var all []*sharedlimit.Limiter
			for range nodes {
				all = append(all, live(t, f, ratelimit.PerSecond(float64(rate)), burst, sharedlimit.Settings{Nodes: nodes, LeaseFor: leaseFor}))
			}
			most = all[0].Settings().MaxLease
			start := time.Now()
			for i, n := range steps {
				for range n {
					if allow(all[i%nodes]) {
						admitted = append(admitted, time.Since(start))
					}
				}
				synctest.Wait()
				time.Sleep(5 * time.Millisecond)
			}
			for _, l := range all {
				closed(t, l)
			}
		})
		for i := range admitted {
			for j := i; j < len(admitted); j += 7 {
				stretch := (admitted[j] - admitted[i]).Seconds()
				bound := float64(burst+nodes*(most+most/4)) + float64(rate)*stretch
				require.LessOrEqual(rt, float64(j-i+1), bound+1, "from %s to %s", admitted[i], admitted[j])
			}
		}
	})
}

func TestLeasesSaveTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, ratelimit.PerSecond(1000), 1000)
		l := live(t, f, ratelimit.PerSecond(1000), 1000, sharedlimit.Settings{Nodes: 1, LeaseFor: 200 * time.Millisecond})
		passed := 0
		for range 10_000 { // 500 a second, steadily
			if allow(l) {
				passed++
			}
			time.Sleep(2 * time.Millisecond)
		}
		assert.Equal(t, 10_000, passed)
		assert.Less(t, f.asked(), 10_000/50+20)
		closed(t, l)
		f.mu.Lock()
		defer f.mu.Unlock()
		taken := 0
		for _, r := range f.takes {
			taken += r.Want
		}
		assert.Equal(t, 10_000, taken-f.backs, "what was not used was given back")
		assert.True(t, f.closed)
	})
}

func TestSharesFollowTheNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := counting{newFake(t, hourly, 12)}
		f.nodes = 3
		l := live(t, f, hourly, 12, sharedlimit.Settings{LocalOnly: true})
		require.NoError(t, l.Wait(key("first"), 1))
		synctest.Wait()
		take := func(k string) (n int) {
			for l.Wait(key(k), 1) == nil {
				n++
			}
			return n
		}
		assert.Equal(t, 4, take("a"))
		f.mu.Lock()
		f.nodes = 100
		f.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 1, take("b"), "at least one")
		f.set(errDown, 0)
		time.Sleep(time.Minute)
		assert.Equal(t, 100, shared(l).Nodes)
		assert.Zero(t, f.asked())
		closed(t, l)
		assert.True(t, f.left)
	})
}

func TestWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, ratelimit.PerSecond(10), 1)
		l := live(t, f, ratelimit.PerSecond(10), 1, sharedlimit.Settings{Nodes: 1, MaxWait: 450 * time.Millisecond, MaxWaiters: 5})
		defer closed(t, l)
		require.True(t, allow(l))
		var got [policy.NumReasons]atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := l.Wait(t.Context(), 1)
				re := &policy.RejectedError{}
				if errors.As(err, &re) {
					got[re.Reason].Add(1)
				} else if err == nil {
					got[0].Add(1)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 4, got[0].Load())
		assert.EqualValues(t, 3, got[policy.ReasonWaiters].Load())
		assert.EqualValues(t, 1, got[policy.ReasonWait].Load())
		assert.Zero(t, l.Snapshot(time.Now()).Limiter.Waiting)
	})
}

func TestPanicOfTheStore(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{0, time.Second} {
		f := newFake(t, hourly, 10)
		l := live(t, f, hourly, 10, sharedlimit.Settings{Nodes: 1, LeaseFor: lease})
		f.panics = true
		assert.PanicsWithValue(t, "store", func() { allow(l) })
		f.panics = false
		assert.True(t, allow(l))
		closed(t, l)
	}
}

func TestPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, hourly, 10)
		l := live(t, f, hourly, 10, sharedlimit.Settings{Nodes: 1, StandIn: sharedlimit.Refuse})
		defer closed(t, l)
		pipe, err := policy.New("dep", l)
		require.NoError(t, err)
		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 11}), pipe, func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		assert.Zero(t, f.asked())
		f.set(errDown, 0)
		for range 8 {
			require.Error(t, l.Wait(t.Context(), 1))
		}
		assert.Equal(t, 5, f.asked())
		_, err = policy.Do(t.Context(), pipe, func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, ratelimit.ErrUnavailable)
	})
}

// Whatever is forgotten, no more is let in than the store says.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	f := newFake(t, hourly, 2)
	l := live(t, f, hourly, 2, sharedlimit.Settings{Nodes: 1, MaxKeys: 100})
	defer closed(t, l)
	for round := range 3 {
		for i := range 1000 {
			err := l.Wait(key(strconv.Itoa(i)), 1)
			assert.Equal(t, round < 2, err == nil)
		}
	}
}

func TestConcurrentSafe(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{0, 20 * time.Millisecond} {
		f := newFake(t, hourly, 2000)
		var all []*sharedlimit.Limiter
		for range 2 {
			all = append(all, live(t, f, hourly, 2000, sharedlimit.Settings{Nodes: 2, LeaseFor: lease, Timeout: time.Minute}))
		}
		var passed atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				l := all[i%2]
				for j := range 1000 {
					now := time.Now()
					if _, ok := l.Take(now, 1); ok {
						passed.Add(1)
						if j%10 == 0 {
							l.Refund(now, 1)
							passed.Add(-1)
						}
					}
					if j%100 == 0 {
						l.Snapshot(now)
					}
				}
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, passed.Load(), int64(2000), "lease %s", lease)
		assert.Greater(t, passed.Load(), int64(1000))
		for _, l := range all {
			closed(t, l)
		}
	}
}
