package bulkhead_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// A pool that was made for a pipeline which cannot be is closed; one that was handed over is
// its owner's, and closes with the last pipeline that it is in.
func TestPoolOfAPipelineThatCannotBe(t *testing.T) {
	t.Parallel()
	bad := policy.Timeouts{Total: -1}
	_, err := policy.New("dep", bulkhead.Pool{Workers: 2}, bad)
	require.Error(t, err) // the workers would be found leaking

	pool, err := bulkhead.NewPool("", bulkhead.Pool{Workers: 2})
	require.NoError(t, err)
	_, err = policy.New("dep", pool, bad)
	require.Error(t, err)
	run := func(p *policy.Pipeline) error {
		return policy.Run(t.Context(), p, func(context.Context) error { return nil })
	}
	p, err := policy.New("dep", pool)
	require.NoError(t, err)
	require.NoError(t, run(p))
	_, err = p.Prepare(pool, bad)
	require.Error(t, err)
	u, err := p.Prepare(pool, policy.Timeouts{Total: 1e9})
	require.NoError(t, err)
	u.Discard()
	require.NoError(t, run(p))
	other, err := policy.New("other", pool)
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, run(other))
	require.NoError(t, other.Close(t.Context()))
	third, err := policy.New("third", pool)
	require.NoError(t, err)
	require.ErrorIs(t, run(third), policy.ErrRejected)
}
