package redislimit_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
)

// BenchmarkTake is a call that the store decides, against a server of the benchmark.
func BenchmarkTake(b *testing.B) {
	s := startRedis(b)
	for name, rule := range map[string]redislimit.Rule{
		"bucket":  redislimit.TokenBucket{Rate: ratelimit.PerSecond(1e6), Burst: 1e6},
		"fixed":   redislimit.FixedWindow{Limit: 1e9, Window: time.Hour},
		"sliding": redislimit.SlidingWindow{Limit: 1e6, Window: time.Minute},
		"log":     redislimit.SlidingLog{Limit: 1e5, Window: time.Second},
	} {
		b.Run(name, func(b *testing.B) {
			l := limiter(b, one(client(b, s.Addr), rule))
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Wait(b.Context(), 1)
			}
		})
	}
}

// BenchmarkRoundTrip is what no call can do without.
func BenchmarkRoundTrip(b *testing.B) {
	c := client(b, startRedis(b).Addr)
	for name, script := range map[string]string{"nothing": `return {1,0,0,0}`, "time": `return redis.call('TIME')`} {
		b.Run(name, func(b *testing.B) {
			s := redis.NewScript(script)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Run(b.Context(), c, []string{"k"}, 1, 1).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
