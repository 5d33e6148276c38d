package pgxgate_test

import (
	"context"
	"testing"

	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
)

// The same query by pgxpool alone, and through the pipeline, on a real server.
func BenchmarkQueryRow(b *testing.B) {
	pool := open(b, pgtest.Server(b), 4, nil, pipe(b), sqlgate.Config{})
	defer pool.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var n int
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := pool.Unwrap().QueryRow(ctx, "SELECT 1").Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := pool.QueryRow(ctx, "SELECT 1").Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	})
}
