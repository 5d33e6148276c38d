package window_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
)

func BenchmarkAdd(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	for b.Loop() {
		w.Add(base, 20)
	}
}

func BenchmarkAddMovingOn(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	now := base
	for b.Loop() {
		now = now.Add(time.Microsecond)
		w.Add(now, 20)
	}
}

func BenchmarkAddParallel(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Add(base, 20)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	for b.Loop() {
		w.Record(base, failed)
	}
}
