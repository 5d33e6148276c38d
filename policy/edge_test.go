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

// What a retry policy measures a call from is its beginning, not the end of its first
// attempt.
func TestCallBeginsBeforeItsFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := &gate{waits: true, enter: func(_ context.Context, a *policy.Attempt) error {
			time.Sleep(time.Second)
			a.Waited()
			return nil
		}}
		for name, p := range map[string]struct {
			gate *gate
			want time.Duration
		}{
			"ran":     {wait, 3 * time.Second},
			"refused": {&gate{limit: -1, enter: wait.enter}, time.Second},
		} {
			r := &retrier{max: 2}
			start := time.Now()
			_, err := policy.Do(t.Context(), build(t, p.gate, r), func(context.Context) (int, error) {
				time.Sleep(2 * time.Second)
				return 0, errBoom
			})
			require.Error(t, err, name)
			assert.Equal(t, start, r.states[0].Started, name)
			assert.Equal(t, p.want, r.states[0].Now.Sub(r.states[0].Started), name)
		}
	})
}
