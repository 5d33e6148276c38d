package ratelimit_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// benchKinds are limits of each kind that let every call in, and that refuse it.
func benchKinds() map[string][2]func() (byHand, error) {
	of := func(name string, l limit) func() (byHand, error) {
		for _, k := range kinds {
			if k.name == name {
				return func() (byHand, error) { return k.make(l) }
			}
		}
		return nil
	}
	pair := func(name string) [2]func() (byHand, error) {
		return [2]func() (byHand, error){
			of(name, limit{tokens: 1 << 20, per: 100 * time.Microsecond}),
			of(name, limit{tokens: 1, per: 1000 * time.Hour}),
		}
	}
	return map[string][2]func() (byHand, error){
		"pacer": pair("pacer with a burst"), "fixed": pair("fixed window"), "log": pair("sliding log"),
		"counter": pair("sliding counter"), "warmup": pair("warm-up with a burst"), "lane": pair("lane"),
	}
}

func BenchmarkKinds(b *testing.B) {
	for name, pair := range benchKinds() {
		for i, what := range []string{"admitted", "refused"} {
			limiter := func(b *testing.B) byHand {
				b.Helper()
				l, err := pair[i]()
				if err != nil {
					b.Fatal(err)
				}
				l.Allow()
				b.ReportAllocs()
				return l
			}
			b.Run(name+"/"+what, func(b *testing.B) {
				l := limiter(b)
				for b.Loop() {
					l.Allow()
				}
			})
			b.Run(name+"/"+what+"-parallel", func(b *testing.B) {
				l := limiter(b)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						l.Allow()
					}
				})
			})
		}
	}
}

// Lanes that yield, with a limit over them.
func BenchmarkLanes(b *testing.B) {
	set, err := ratelimit.NewLaneSet("", ratelimit.Lanes{
		Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(1e9), Burst: 1e9},
			{Name: "b", Priority: policy.PriorityLow, Rate: ratelimit.PerSecond(1e9), Burst: 1e9, YieldTo: "a", YieldBelow: 5},
		},
		Total: ratelimit.SlidingWindow{Limit: 1 << 20, Window: time.Millisecond},
	})
	if err != nil {
		b.Fatal(err)
	}
	lane := set.Lane("b")
	b.Run("admitted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			lane.Allow()
		}
	})
	b.Run("admitted-parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				lane.Allow()
			}
		})
	})
}

// A line of a thousand, in which one more finds that it is full, or that the wait would
// be too long; and one gives up and another comes.
func BenchmarkLine(b *testing.B) {
	for name, waiters := range map[string]int{"full": 1000, "too-long": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			p := newPace(b, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: 1000 * time.Second, MaxWaiters: waiters})
			p.Allow()
			ctx := b.Context()
			for range 1000 {
				go func() { _ = p.Wait(ctx, 1) }()
			}
			for p.Snapshot(time.Now()).Limiter.Waiting < 1000 {
				time.Sleep(time.Millisecond)
			}
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Wait(ctx, 1)
			}
		})
	}
}
