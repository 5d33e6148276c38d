package bulkhead_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestTune(t *testing.T) {
	t.Parallel()
	permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 8, Reserve: 2})
	require.NoError(t, err)
	pool, err := bulkhead.NewPool("", bulkhead.Pool{Workers: 8})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	for field, of := range map[string]policy.Tunable{"Limit": permits, "Workers": pool} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := of.Settings()
			require.Len(t, s, 1)
			assert.Equal(t, field, s[0].Name)
			assert.InDelta(t, 8, s[0].Value, 0)
			var fault *policy.ConfigError
			for _, bad := range []map[string]float64{{"Nothing": 4}, {field: math.NaN()}, {field: 0}, {field: 2.5}, {field: 1e12}} {
				require.ErrorAs(t, of.Tune(bad), &fault, "%v", bad)
			}
			assert.InDelta(t, 8, of.Settings()[0].Value, 0, "what is wrong changes nothing")
			require.NoError(t, of.Tune(nil))
			require.NoError(t, of.Tune(map[string]float64{field: 5}))
			assert.InDelta(t, 5, of.Settings()[0].Value, 0)
		})
	}
	assert.InDelta(t, 3, permits.Settings()[0].Least, 0, "the reserve is not the least")
}
