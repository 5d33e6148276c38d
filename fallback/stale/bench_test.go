package stale_test

import (
	"context"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/fallback/stale"
)

func benchmark(b *testing.B, cfg stale.Config[int], load func(context.Context) (int, error)) {
	b.Helper()
	c, err := stale.New(nil, cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }() //nolint:usetesting // that of the test has ended
	c.Set("sku", 1)
	time.Sleep(time.Microsecond)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.GetResult(ctx, "sku", load); err != nil {
				b.Error(err)
			}
		}
	})
}

func fails(context.Context) (int, error) { return 0, errDown }

func BenchmarkHit(b *testing.B) { benchmark(b, stale.Config[int]{Fresh: time.Hour}, fails) }

// What a caller pays while the dependency is away.
func BenchmarkStale(b *testing.B) {
	benchmark(b, stale.Config[int]{Fresh: time.Nanosecond, MaxAge: time.Hour, RetryIn: time.Hour}, fails)
}
