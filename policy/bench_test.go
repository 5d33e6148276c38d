package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

func BenchmarkDoWith(b *testing.B) {
	p, err := policy.New("dep")
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_, err = policy.DoWith(ctx, p, &n, func(_ context.Context, n *int) (int, error) { *n++; return *n, nil })
	}
	_ = err
}

func BenchmarkDo(b *testing.B) {
	p, err := policy.New("dep")
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_, err = policy.Do(ctx, p, func(_ context.Context) (int, error) { n++; return n, nil })
	}
	_ = err
}

func BenchmarkEnterLeave(b *testing.B) {
	p, err := policy.New("dep")
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		h, err := p.Enter(ctx)
		if err != nil {
			b.Fatal(err)
		}
		h.Leave(nil)
	}
}

// Of a call that may be hedged, and is not: it answers at once. Others of the pipeline
// keep the fast path.
func BenchmarkHedge(b *testing.B) {
	p, err := policy.New("dep", &hedger{delay: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for name, ctx := range map[string]context.Context{
		"may be hedged": policy.WithCall(b.Context(), policy.Call{Idempotent: true}),
		"may not":       b.Context(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err = policy.DoWith(ctx, p, &n, func(_ context.Context, n *int) (int, error) { *n++; return *n, nil })
			}
		})
	}
	_ = err
}
