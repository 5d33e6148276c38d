package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// A function may outlive its call on a pool, and where the call may be hedged.
func TestDetaches(t *testing.T) {
	t.Parallel()
	var none *policy.Pipeline
	require.False(t, none.Detaches(policy.Call{Idempotent: true}))

	plain, err := policy.New("plain", bulkhead.Semaphore{})
	require.NoError(t, err)
	require.False(t, plain.Detaches(policy.Call{Idempotent: true}))

	hedged, err := policy.New("hedged", &hedger{})
	require.NoError(t, err)
	require.False(t, hedged.Detaches(policy.Call{}))
	require.False(t, hedged.Detaches(policy.Call{Idempotent: true, NoRetry: true}))
	require.True(t, hedged.Detaches(policy.Call{Idempotent: true}))

	pooled, err := policy.New("pooled", bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	require.True(t, pooled.Detaches(policy.Call{}))
	require.NoError(t, pooled.Close(t.Context()))
}
