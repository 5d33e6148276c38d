package retry_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

func BenchmarkFirst(b *testing.B) {
	r := newRetrier(b, retry.Config{})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		retry.FirstAt(r, now)
	}
}

func BenchmarkFirstParallel(b *testing.B) {
	r := newRetrier(b, retry.Config{})
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			retry.FirstAt(r, now)
		}
	})
}

func benchDecide(b *testing.B, want policy.Stop, budget retry.BudgetSource) {
	b.Helper()
	r := newRetrier(b, retry.Config{Budget: budget})
	now := time.Now()
	s := policy.RetryState{Now: now, Started: now, Attempt: 1, Outcome: policy.Outcome{Kind: policy.Failure}}
	b.ReportAllocs()
	for b.Loop() {
		if d := r.Decide(s); d.Stop != want {
			b.Fatalf("stop is %s, want %s", d.Stop, want)
		}
		if want == policy.StopNone {
			r.Undo(now)
		}
	}
}

func BenchmarkDecideAllowedAndUndone(b *testing.B) {
	benchDecide(b, policy.StopNone, retry.BudgetConfig{})
}

func BenchmarkDecideRefused(b *testing.B) {
	benchDecide(b, policy.StopBudget, retry.BudgetConfig{MinPerSecond: retry.Off})
}

func BenchmarkDecideTokens(b *testing.B) {
	benchDecide(b, policy.StopBudget, retry.TokenBudgetConfig{})
}

func BenchmarkDecideInFlight(b *testing.B) {
	benchDecide(b, policy.StopNone, retry.InFlightBudgetConfig{})
}

// What retry, budget and fallback cost a call that succeeds: the same pipeline without
// them, and with. Run it several times over, since runs of one benchmark follow each
// other:
//
//	go test -c ./retry && for i in {1..10}; do ./retry.test -test.run '^$' -test.bench Success; done
func BenchmarkSuccess(b *testing.B) {
	gates := []policy.Policy{
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e9), Burst: 1e9}, bulkhead.Semaphore{Limit: 100}, breaker.Config{},
	}
	budgeted := func(budget retry.BudgetSource) []policy.Policy {
		return append(slices.Clone(gates), retry.Config{Budget: budget}, fallback.Value(0))
	}
	shared, err := retry.NewBudget(retry.BudgetConfig{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := policy.New("other", retry.Config{Budget: shared}); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name     string
		policies []policy.Policy
	}{
		{"gates", gates},
		{"gates+retry+budget+fallback", budgeted(nil)},
		{"gates+retry+tokens+fallback", budgeted(retry.TokenBudgetConfig{})},
		{"gates+retry+inflight+fallback", budgeted(retry.InFlightBudgetConfig{})},
		{"gates+retry+shared+fallback", budgeted(shared)},
		{"nothing", nil},
		{"retry+budget+fallback", []policy.Policy{retry.Config{}, fallback.Value(0)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p, err := policy.New("inventory", bb.policies...)
			if err != nil {
				b.Fatal(err)
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := policy.DoWith(ctx, p, 1, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func answer(_ context.Context, n int) (int, error) { return n, nil }

func BenchmarkDecideWithoutBudget(b *testing.B) {
	benchDecide(b, policy.StopNone, retry.NoBudget{})
}
