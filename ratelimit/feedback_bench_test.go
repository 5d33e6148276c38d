package ratelimit_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
)

func BenchmarkFeedback(b *testing.B) {
	for name, cfg := range map[string]ratelimit.Feedback{
		"admitted": {Ceiling: ratelimit.PerSecond(1e9), Burst: 1e9},
		"refused":  {Ceiling: ratelimit.Every(time.Hour), Burst: 1},
	} {
		g, now := newGovernor(b, cfg), time.Now()
		g.Take(now, 1)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(100)
				g.Take(now, 1)
			}
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					g.Allow()
				}
			})
		})
	}
}
