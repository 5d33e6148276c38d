package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// Rates at which every call of a benchmark is admitted, or nearly every one refused.
var (
	ample  = ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e9), Burst: 1e9}
	scarce = ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1}
)

func newBucket(tb testing.TB, cfg ratelimit.TokenBucket) *ratelimit.Bucket {
	tb.Helper()
	b, err := ratelimit.New("", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func BenchmarkTake(b *testing.B) {
	long := ample // its fraction is too long to be exact
	long.Rate.Tokens = 1e9 / math.Pi
	for name, cfg := range map[string]ratelimit.TokenBucket{"admitted": ample, "admitted-long-fraction": long, "refused": scarce} {
		b.Run(name, func(b *testing.B) {
			l, now := newBucket(b, cfg), time.Now()
			l.Take(now, 1)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(100)
				l.Take(now, 1)
			}
		})
	}
}

func BenchmarkAllow(b *testing.B) {
	for name, cfg := range map[string]ratelimit.TokenBucket{"admitted": ample, "refused": scarce} {
		b.Run(name, func(b *testing.B) {
			l := newBucket(b, cfg)
			l.Allow()
			b.ReportAllocs()
			for b.Loop() {
				l.Allow()
			}
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			l := newBucket(b, cfg)
			l.Allow()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow()
				}
			})
		})
	}
}
