package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// A later attempt that ends with its context is counted like a first one that does.
func TestStopIsCountedWhenALaterAttemptEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end  func(context.Context) (context.Context, context.CancelFunc)
			want policy.Stop
		}{
			"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			}, policy.StopDeadline},
			"canceled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, policy.StopCanceled},
		} {
			rec := &recorder{}
			p := build(t, &retrier{max: 5}, policy.Observe(rec))
			ctx, cancel := c.end(t.Context())
			calls := 0
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
				if calls++; calls == 2 {
					<-ctx.Done()
				}
				return 0, errBoom
			})
			cancel()
			require.ErrorIs(t, err, errBoom, name)
			assert.Equal(t, 2, calls, name)
			assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Retry.Stopped[c.want], name)
			assert.Equal(t, []string{"retry", "stopped"}, rec.kinds(), name)
		}
	})
}
