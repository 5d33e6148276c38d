package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// limits are limiters of one kind, which let every call in or hardly any.
type limits struct {
	ours      *ratelimit.Bucket
	xtime     *rate.Limiter
	throttled *throttled.GCRARateLimiterCtx
}

// newLimits returns limiters of a rate in calls per second and a burst, of which the
// burst is taken when drained is asked for.
func newLimits(perSecond float64, burst int, drained bool) (*limits, error) {
	ours, err1 := ratelimit.New("dependency", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(perSecond), Burst: burst})
	// It counts in whole periods of a nanosecond at the least.
	period := throttled.PerDuration(1, max(time.Duration(1e9/perSecond), 1))
	store, err2 := memstore.NewCtx(0)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: period, MaxBurst: burst - 1})
	if err != nil {
		return nil, err
	}
	l := &limits{ours: ours, xtime: rate.NewLimiter(rate.Limit(perSecond), burst), throttled: gcra}
	if drained {
		ours.AllowN(burst)
		l.xtime.AllowN(time.Now(), burst)
		_, _, err = gcra.RateLimitCtx(context.Background(), limitKey, burst)
	}
	return l, err
}

// limitKey is the one key of limiters that have no other form than keyed ones.
const limitKey = "user:10000001"

// LimitCases are the cases of package ratelimit: a token taken, with and without a look
// at the clock, alone and by all processors at once; one refused; and one for a key.
// uber/ratelimit only waits, at a rate at which nobody has to.
func LimitCases() ([]Case, error) {
	ample, err1 := newLimits(1e9, 1e9, false)
	scarce, err2 := newLimits(1.0/3600, 1, true)
	keyed, err3 := ratelimit.NewKeyed("dependency", ratelimit.Keyed{Rate: ratelimit.PerSecond(1e9), Burst: 1e9})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	ctx, spaced := context.Background(), uber.New(1e9)

	count := func(ok bool, n *int) {
		if ok {
			*n++
		}
	}
	allow := func(l *limits, run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) { count(l.ours.Allow(), n) }),
			subject("x/time/rate", func(n *int) { count(l.xtime.Allow(), n) }),
			subject("throttled", func(n *int) {
				limited, _, err := l.throttled.RateLimitCtx(ctx, limitKey, 1)
				count(!limited && err == nil, n)
			}),
		}
	}
	withUber := func(subjects []Subject, run func(func(*int)) func(*testing.B)) []Subject {
		call := func(n *int) { spaced.Take(); *n++ }
		return append(subjects, Subject{Name: "uber/ratelimit", Run: run(call), call: call})
	}
	// Every call is given the next moment, which costs both the same.
	now := time.Now()
	at := func(n *int) time.Time { return now.Add(time.Duration(*n)) }
	take := func(run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) {
				_, ok := ample.ours.Take(at(n), 1)
				count(ok, n)
			}),
			subject("x/time/rate", func(n *int) { count(ample.xtime.AllowN(at(n), 1), n) }),
		}
	}
	perKey := func(run func(func(*int)) func(*testing.B)) []Subject {
		call := func(n *int) { count(keyed.Allow(limitKey), n) }
		return []Subject{{Name: "breakwater", Run: run(call), call: call}, allow(ample, run)[2]}
	}
	return []Case{
		{"limit", withUber(allow(ample, one), one)},
		{"limit_parallel", withUber(allow(ample, many), many)},
		{"limit_take", take(one)},
		{"limit_take_parallel", take(many)},
		{"limit_refused", allow(scarce, one)},
		{"limit_refused_parallel", allow(scarce, many)},
		{"limit_keyed", perKey(one)},
		{"limit_keyed_parallel", perKey(many)},
	}, nil
}
