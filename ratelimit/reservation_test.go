package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// reserve makes a reservation that must have the given delay.
func reserve(t *testing.T, b *ratelimit.Bucket, at time.Time, n int, delay time.Duration) *ratelimit.Reservation {
	t.Helper()
	r := b.Reserve(at, n)
	require.True(t, r.OK())
	require.Equal(t, delay, r.Delay())
	return &r
}

func TestReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2}), time.Now()
		reserve(t, b, start, 1, 0)
		reserve(t, b, start, 2, time.Second)
		reserve(t, b, start, 1, 2*time.Second)
		reserve(t, b, start, 0, 0)
		reserve(t, b, start.Add(500*ms), 1, 2500*ms)
		wait, ok := b.Take(start.Add(500*ms), 1)
		assert.False(t, ok)
		assert.Equal(t, 3500*ms, wait)
		reserve(t, b, start.Add(4*time.Second), 1, 0)
	})
}

func TestCaseB04ReservationOfCenturies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []ratelimit.TokenBucket{
			{Rate: ratelimit.PerSecond(1e-11), Burst: 1},
			{Rate: ratelimit.Every(366 * 24 * time.Hour), Burst: 1},
		} {
			b, now := newBucket(t, cfg), time.Now()
			reserve(t, b, now, 1, 0)
			r := b.Reserve(now, 1)
			assert.False(t, r.OK())
			assert.Greater(t, r.Delay(), 365*24*time.Hour)
			r.Cancel(now)
			assert.InDelta(t, 0, b.Tokens(now), 0, "nothing was taken")

			err := b.Wait(t.Context(), 1)
			var re *policy.RejectedError
			require.ErrorAs(t, err, &re)
			assert.Equal(t, policy.ReasonWait, re.Reason)
			assert.Equal(t, r.Delay(), re.RetryAfter)
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.EqualError(t, re.Err, "ratelimit: wait exceeds maximum")
			assert.Equal(t, now, time.Now(), "at once")
		}
		// A day is no problem.
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.Every(24 * time.Hour), Burst: 1})
		reserve(t, b, time.Now(), 1, 0)
		reserve(t, b, time.Now(), 1, 24*time.Hour)
	})
}

func TestCaseB11CancelInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{1, 2}, {2, 1}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 10}), time.Now()
				rs := []*ratelimit.Reservation{
					reserve(t, b, start, 10, 0),
					reserve(t, b, start, 1, time.Second),
					reserve(t, b, start, 1, 2*time.Second),
				}
				for _, i := range order {
					rs[i].Cancel(start)
					rs[i].Cancel(start) // once is enough
				}
				rs[0].Cancel(start) // it may have acted
				assert.InDelta(t, 0, b.Tokens(start), 0)
				reserve(t, b, start, 1, time.Second)
			})
		})
	}
}

func TestCaseB11CancelTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}), time.Now()
		reserve(t, b, start, 1, 0)
		r := reserve(t, b, start, 1, time.Second)
		r.Cancel(start.Add(time.Second))
		r.Cancel(start)
		reserve(t, b, start.Add(time.Second), 1, time.Second)

		var zero ratelimit.Reservation
		zero.Cancel(start)
		assert.False(t, zero.OK())
	})
}

// The gap that a cancelled reservation leaves goes to who comes next, and the one
// behind keeps its time.
func TestCancelLeavesNoGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}), time.Now()
		reserve(t, b, start, 1, 0)
		first := reserve(t, b, start, 1, time.Second)
		reserve(t, b, start, 1, 2*time.Second)
		assert.InDelta(t, -2, b.Tokens(start), 0)
		first.Cancel(start)
		assert.InDelta(t, -1, b.Tokens(start), 0)
		wait, ok := b.Take(start, 1)
		assert.False(t, ok)
		assert.Equal(t, time.Second, wait)
		_, ok = b.Take(start.Add(time.Second), 1)
		assert.True(t, ok)
		wait, ok = b.Take(start.Add(time.Second), 1)
		assert.False(t, ok)
		assert.Equal(t, 2*time.Second, wait, "after the one that is left")
	})
}

// After most of a long queue has given up, the tokens that come in meanwhile are to be
// had, and those who stayed do not come on top of them.
func TestMassCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 1, Initial: ratelimit.StartEmpty}), time.Now()
		var rs []*ratelimit.Reservation
		for i := range 1000 {
			rs = append(rs, reserve(t, b, start, 1, time.Duration(i+1)*100*ms))
		}
		for _, r := range rs[:500] {
			r.Cancel(start)
		}
		perSecond := make([]int, 101)
		for at := time.Duration(0); at < 100*time.Second; at += 50 * ms {
			if _, ok := b.Take(start.Add(at), 1); ok {
				perSecond[at/time.Second]++
			}
		}
		for i := range 1000 - 500 {
			perSecond[time.Duration(500+i+1)*100*ms/time.Second]++
		}
		assert.Equal(t, 9, perSecond[0], "the bucket was empty")
		for s, n := range perSecond[1:100] {
			assert.Equal(t, 10, n, "second %d", s+1)
		}
		assert.Equal(t, 1, perSecond[100])
	})
}

func TestCaseB01WaitAfterIdle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.TokenBucket
		taken int // at 0
		at    time.Duration
		waits int
		want  func(i int) time.Duration
	}{
		{
			"slack of 2",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 3},
			1, 4 * time.Second, 100,
			func(i int) time.Duration { return time.Duration(4+max(0, i-2)) * time.Second },
		},
		{
			"capacity 1",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1},
			1, 30 * time.Second, 8,
			func(i int) time.Duration { return time.Duration(30+i) * time.Second },
		},
		{
			"100/s, capacity 1",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 1},
			0, 0, 10,
			func(i int) time.Duration { return time.Duration(10*i) * ms },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, start := newBucket(t, tt.cfg), time.Now()
				require.True(t, b.AllowN(tt.taken))
				time.Sleep(tt.at)
				var got []time.Duration
				for range tt.waits { // one after the other: each sees the one before
					require.NoError(t, b.Wait(t.Context(), 1))
					got = append(got, time.Since(start))
				}
				for i := range got {
					assert.Equal(t, tt.want(i), got[i], "wait %d", i)
				}

				// All at once: in the order in which they came.
				time.Sleep(time.Hour)
				b, start = newBucket(t, tt.cfg), time.Now()
				require.True(t, b.AllowN(tt.taken))
				time.Sleep(tt.at)
				got = make([]time.Duration, tt.waits)
				var wg sync.WaitGroup
				for i := range tt.waits {
					wg.Go(func() {
						assert.NoError(t, b.Wait(t.Context(), 1))
						got[i] = time.Since(start)
					})
					synctest.Wait()
				}
				wg.Wait()
				for i := range got {
					assert.Equal(t, tt.want(i), got[i], "wait %d", i)
				}
			})
		})
	}
}

func TestCaseB12DeadlineThatCannotBeMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := newBucket(t, ratelimit.TokenBucket{Name: "quota", Rate: ratelimit.PerSecond(1), Burst: 1})
		require.True(t, b.Allow())

		for _, timeout := range []time.Duration{500 * ms, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			err := b.Wait(ctx, 1)
			cancel()
			assert.Equal(t, start, time.Now(), "at once")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, policy.ErrRejected)
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			var re *policy.RejectedError
			require.ErrorAs(t, err, &re)
			assert.Equal(t, policy.ReasonDeadline, re.Reason)
			assert.Equal(t, "quota", re.Policy)
			assert.Equal(t, time.Second, re.RetryAfter)
			assert.EqualError(t, re.Err, "ratelimit: the tokens come no earlier than the context's deadline")
		}

		// A context that is done is something else.
		ctx, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		err := b.Wait(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, policy.ErrRejected)
		require.NotErrorIs(t, err, ratelimit.ErrLimited)

		time.Sleep(time.Second)
		assert.True(t, b.Allow(), "nothing was reserved")

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, 1), policy.ErrRejected)
		assert.Equal(t, time.Second, time.Since(start), "at once")

		// One nanosecond more is enough.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second+1)
		defer cancel()
		require.NoError(t, b.Wait(ctx, 1))
		assert.Equal(t, 2*time.Second, time.Since(start))

		// So it is in a gap that a reservation has left.
		gap := reserve(t, b, time.Now(), 1, time.Second)
		reserve(t, b, time.Now(), 1, 2*time.Second)
		gap.Cancel(time.Now())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, 1), policy.ErrRejected)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second+1)
		defer cancel()
		require.NoError(t, b.Wait(ctx, 1))
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestWaitGivesBackWhenCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2})
		require.True(t, b.AllowN(2))
		reason := errors.New("user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			err := b.Wait(ctx, 2)
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, reason)
			assert.NotErrorIs(t, err, policy.ErrRejected)
			assert.Equal(t, 500*ms, time.Since(start))
		})
		synctest.Wait()
		assert.InDelta(t, -2, b.Tokens(time.Now()), 0, "reserved")
		time.Sleep(500 * ms)
		cancel(reason)
		wg.Wait()
		assert.InDelta(t, 0.5, b.Tokens(time.Now()), 0, "given back")
		err := b.Wait(ctx, 1)
		assert.ErrorIs(t, err, reason)
		assert.InDelta(t, 0.5, b.Tokens(time.Now()), 0, "a context that is done takes nothing")
		assert.NoError(t, b.Wait(t.Context(), 0))
		assert.NoError(t, b.Wait(t.Context(), -1))
	})
}

// When the token and the cancellation come at the same moment, the caller gets the
// context's error and the bucket the token.
func TestWaitCutShortAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1})
			require.True(t, b.Allow())
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(time.Second, cancel)
			err := b.Wait(ctx, 1)
			// Which of the two timers runs first is open; both answers are whole.
			if err == nil {
				assert.InDelta(t, 0, b.Tokens(time.Now()), 0)
			} else {
				assert.ErrorIs(t, err, context.Canceled)
				assert.InDelta(t, 1, b.Tokens(time.Now()), 0)
			}
			stop.Stop()
			cancel()
		}
	})
}

// A change of the limit keeps what was promised.
func TestSetLimitKeepsReservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2}), time.Now()
		require.True(t, b.AllowN(2))
		r := reserve(t, b, start, 2, 2*time.Second)
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(10), 2))
		// The new rate brings 18 tokens before the promised time; 2 must be there then.
		reserve(t, b, start, 1, 100*ms)
		at := start.Add(1900 * ms)
		assert.InDelta(t, 1, b.Tokens(at), 0, "of 2, as only 1 comes in until then")
		_, ok := b.Take(at, 1)
		assert.True(t, ok)
		wait, ok := b.Take(at, 1)
		assert.False(t, ok)
		assert.Equal(t, 200*ms, wait)
		r.Cancel(at)
		assert.InDelta(t, 1, b.Tokens(at), 0)

		// Without a limit there is nothing to wait for, also while some still wait.
		_, ok = b.Take(at, 1)
		require.True(t, ok)
		r = reserve(t, b, at, 2, 200*ms)
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(math.Inf(1)), 2))
		assert.InDelta(t, 2, b.Tokens(at), 0)
		reserve(t, b, at, 2, 0)
		b.Refund(at, 2)
		assert.InDelta(t, 2, b.Tokens(at), 0)
		r.Cancel(at)
		assert.InDelta(t, 2, b.Tokens(at), 0)
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(1), 2))
		assert.InDelta(t, 2, b.Tokens(at), 0)
	})
}

// In any stretch of time no more than burst + rate*time act, whoever reserves and
// cancels in whatever order.
func TestPropSlidingBound(t *testing.T) {
	t.Parallel()
	type act struct {
		at time.Duration
		n  int
	}
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.SampledFrom([]float64{1, 3, 0.5, 10, math.Pi}).Draw(t, "rate")
		burst := rapid.IntRange(1, 6).Draw(t, "burst")
		b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(perSecond), Burst: burst})
		require.NoError(t, err)
		start := time.Now()
		var acts []act
		type pending struct {
			act
			r ratelimit.Reservation
		}
		var ahead []pending
		at := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "ops") {
			at += time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "step"))
			at -= at % (100 * ms) // so that much happens at the same moment
			n := rapid.IntRange(1, burst).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				if _, ok := b.Take(start.Add(at), n); ok {
					acts = append(acts, act{at, n})
				}
			case 1:
				if len(ahead) > 0 {
					i := rapid.IntRange(0, len(ahead)-1).Draw(t, "which")
					ahead[i].r.Cancel(start.Add(at))
					if ahead[i].at <= at {
						acts = append(acts, ahead[i].act) // too late
					}
					ahead = append(ahead[:i:i], ahead[i+1:]...)
				}
			default:
				r := b.Reserve(start.Add(at), n)
				require.True(t, r.OK())
				ahead = append(ahead, pending{act{at + r.Delay(), n}, r})
			}
		}
		for _, p := range ahead {
			acts = append(acts, p.act)
		}
		for _, from := range acts {
			for _, to := range acts {
				total := 0
				for _, a := range acts {
					if from.at <= a.at && a.at <= to.at {
						total += a.n
					}
				}
				// Times are rounded up to a nanosecond, and the start was before ours.
				most := float64(burst) + perSecond*(to.at-from.at+1).Seconds() + 1e-6
				if to.at >= from.at {
					require.LessOrEqual(t, float64(total), most, "from %s to %s", from.at, to.at)
				}
			}
		}
	})
}
