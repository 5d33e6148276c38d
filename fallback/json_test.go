package fallback_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	type stock struct {
		SKU     string `json:"sku"`
		InStock bool   `json:"inStock"`
	}
	p, err := policy.New("inventory", fallback.JSON("", []byte(`{"sku": "a", "inStock": true}`)))
	require.NoError(t, err)
	down := errors.New("down")
	s, err := policy.Do(t.Context(), p, func(context.Context) (stock, error) { return stock{}, down })
	require.NoError(t, err)
	assert.Equal(t, stock{"a", true}, s)
	ptr, err := policy.Do(t.Context(), p, func(context.Context) (*stock, error) { return nil, down })
	require.NoError(t, err)
	assert.Equal(t, &stock{"a", true}, ptr)
	m, err := policy.DoResult(t.Context(), p, func(context.Context) (map[string]any, error) { return nil, down })
	require.NoError(t, err)
	assert.True(t, m.Degraded)
	assert.Equal(t, map[string]any{"sku": "a", "inStock": true}, m.Value)
	other, err := policy.Do(t.Context(), p, func(context.Context) (any, error) { return nil, down })
	require.NoError(t, err)
	assert.Equal(t, m.Value, other)
	m.Value["sku"] = "mine"
	again, err := policy.Do(t.Context(), p, func(context.Context) (map[string]any, error) { return nil, down })
	require.NoError(t, err)
	assert.Equal(t, "a", again["sku"], "each caller has its own")

	_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, down })
	require.ErrorIs(t, err, down)
	require.ErrorContains(t, err, "does not fit *int")
	_, err = policy.Do(t.Context(), p, func(context.Context) (struct{ Other int }, error) { return struct{ Other int }{}, down })
	require.ErrorContains(t, err, "unknown field")
	assert.Equal(t, uint64(2), p.Snapshot().Policies[0].Fallback.Failed)

	for _, bad := range []string{"", "{", "1 2"} {
		_, err = policy.New("inventory", fallback.JSON("x", []byte(bad)))
		require.ErrorContains(t, err, "inventory.x.Value: want a value in JSON", bad)
	}
}
