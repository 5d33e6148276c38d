package fallback_test

import (
	"context"
	"testing"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// What a call costs that a gate refuses and a fallback answers: the path of every
// call while a breaker is open.
func BenchmarkRefusedAndAnswered(b *testing.B) {
	p, err := policy.New("inventory", shut{}, fallback.Value(1))
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 0, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	fb := fallback.Value(1)
	ctx := b.Context()
	f := policy.FailedCall{Outcome: policy.Outcome{Kind: policy.Failure}, Err: errDown}
	b.ReportAllocs()
	for b.Loop() {
		if fb.Handles(f) {
			_, _ = fb.Answer(ctx, f)
		}
	}
}
