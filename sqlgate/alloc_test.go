//go:build !race

package sqlgate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a statement costs beside database/sql's own.
func TestAllocGuarded(t *testing.T) {
	db := guarded(t)
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n int
	for name, c := range map[string]struct {
		bare, guarded func() error
		most          float64
	}{
		"exec": {
			func() error { _, err := db.Unwrap().ExecContext(ctx, "X"); return err },
			func() error { _, err := db.ExecContext(ctx, "X"); return err },
			1, // the call
		},
		"row": {
			func() error { return db.Unwrap().QueryRowContext(ctx, "X").Scan(&n) },
			func() error { return db.QueryRowContext(ctx, "X").Scan(&n) },
			12,
		},
	} {
		count := func(f func() error) float64 {
			return testing.AllocsPerRun(500, func() { require.NoError(t, f()) })
		}
		assert.LessOrEqual(t, count(c.guarded)-count(c.bare), c.most, name)
	}
}
