//go:build !race

package stale_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback/stale"
)

func TestAllocHit(t *testing.T) {
	c, err := stale.New(nil, stale.Config[int]{Fresh: time.Hour})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }() //nolint:usetesting // that of the test has ended
	c.Set("sku", 1)
	load := func(context.Context) (int, error) { return 0, errDown }
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if r, err := c.GetResult(ctx, "sku", load); err != nil || r.Value != 1 {
			t.Error(r, err)
		}
	}))
}
