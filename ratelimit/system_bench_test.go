package ratelimit_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func BenchmarkSystem(b *testing.B) {
	calm, full := &gauge{}, &gauge{cpu: 1}
	cfg := ratelimit.System{MaxDelay: ratelimit.NoDelay, MinInFlight: 1}
	for name, g := range map[string]*gauge{"admitted": calm, "refused": full} {
		cfg.CPU = g.readCPU
		s, now := newShedder(b, cfg), time.Now().Add(time.Minute)
		_ = s.Acquire(now, policy.PriorityNormal) // takes a reading, and stays
		call := func() {
			if s.Acquire(now, policy.PriorityNormal) == nil {
				s.Release(now, policy.PriorityNormal, time.Millisecond)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
		})
	}
}
