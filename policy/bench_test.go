package policy_test

import (
	"context"
	"testing"

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
