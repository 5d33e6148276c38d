package ratelimit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// expiring is a context that is found to be done from a moment on, by who looks then.
type expiring struct {
	context.Context //nolint:containedctx // it is one

	at time.Time
}

func (e expiring) Err() error {
	if time.Now().Before(e.at) {
		return nil
	}
	return context.Canceled
}

// Somebody gives up at the very moment at which its tokens come, while others wait
// behind: they go to who is next.
func TestWaitGivenUpWhenLetIn(t *testing.T) {
	t.Parallel()
	rate, wait := ratelimit.PerSecond(1), time.Minute
	for name, spec := range map[string]policy.Policy{
		"keyed":    ratelimit.Keyed{Rate: rate, Burst: 1, MaxWait: wait, MaxKeys: 1},
		"overflow": ratelimit.Keyed{Rate: rate, Burst: 1, MaxWait: wait, MaxKeys: 1, Exceptions: map[string]ratelimit.Limit{"": {Rate: rate, Burst: 1}}},
		"all":      ratelimit.All{Limits: []policy.Policy{ratelimit.Keyed{Rate: rate, Burst: 1}, ratelimit.TokenBucket{Rate: rate, Burst: 1}}, MaxWait: wait},
		"feedback": ratelimit.Feedback{Ceiling: rate, Burst: 1, MaxWait: wait},
		"bucket":   ratelimit.TokenBucket{Rate: rate, Burst: 1},
		"pacer":    ratelimit.Pacer{Rate: rate, MaxWait: wait},
		"fixed":    ratelimit.FixedWindow{Limit: 1, Window: time.Second, MaxWait: wait},
		"sliding":  ratelimit.SlidingWindow{Limit: 1, Window: time.Second, MaxWait: wait},
		"warm-up":  ratelimit.WarmUp{Rate: rate, ColdFactor: 1, MaxWait: wait},
		"lanes":    ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate, Burst: 1, MaxWait: wait}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				part, err := spec.BuildPolicy()
				require.NoError(t, err)
				l := part.Gate.(policy.Snapshotter)
				p := newPipeline(t, part.Gate.(policy.Policy))
				do := func(ctx context.Context) error {
					if b, ok := part.Gate.(*ratelimit.Bucket); ok { // which does not wait in a pipeline
						return b.Wait(ctx, 1)
					}
					_, err := policy.Do(ctx, p, succeed)
					return err
				}
				require.NoError(t, do(t.Context()))
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					assert.ErrorIs(t, do(expiring{t.Context(), start.Add(time.Second)}), context.Canceled)
				})
				synctest.Wait()
				var mu sync.Mutex
				var let []time.Duration
				for range 2 {
					wg.Go(func() {
						assert.NoError(t, do(t.Context()))
						mu.Lock()
						defer mu.Unlock()
						let = append(let, time.Since(start))
					})
					synctest.Wait()
				}
				assert.Equal(t, 3, l.Snapshot(time.Now()).Limiter.Waiting)
				wg.Wait()
				assert.Equal(t, []time.Duration{time.Second, 2 * time.Second}, let)
				assert.Zero(t, l.Snapshot(time.Now()).Limiter.Waiting)
			})
		})
	}
}
