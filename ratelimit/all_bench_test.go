package ratelimit_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func BenchmarkAll(b *testing.B) {
	few := ratelimit.TokenBucket{Name: "scarce", Rate: scarce.Rate, Burst: scarce.Burst}
	for name, limits := range map[string][]policy.Policy{
		"admitted": {ratelimit.Keyed{Rate: ratelimit.PerSecond(1e9), Burst: 1e9}, ample},
		"refused":  {ratelimit.Keyed{Rate: ratelimit.PerSecond(1e9), Burst: 1e9}, few},
	} {
		l, now := newBundle(b, ratelimit.All{Limits: limits}), time.Now()
		l.Take(now, 1)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Take(now, 1)
			}
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Take(now, 1)
				}
			})
		})
	}
}
