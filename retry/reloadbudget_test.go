package retry_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/retry"
)

// A live budget that policies share goes on under other settings.
func TestReloadBudget(t *testing.T) {
	t.Parallel()
	b, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.1})
	require.NoError(t, err)
	apply, err := retry.ReloadBudget(b, &retry.BudgetConfig{Ratio: 0.3})
	require.NoError(t, err)
	assert.InDelta(t, 0.1, b.Config().Ratio, 1e-9, "not before apply")
	apply()
	assert.InDelta(t, 0.3, b.Config().Ratio, 1e-9)
	for _, next := range []retry.BudgetSource{
		nil, retry.NoBudget{}, retry.TokenBudgetConfig{}, retry.BudgetConfig{Ratio: 7}, b,
	} {
		_, err := retry.ReloadBudget(b, next)
		assert.Error(t, err, "%#v", next)
	}
}
