package sharedlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// granting is a store that takes no time.
type granting struct{}

func (granting) Take(_ context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	return sharedlimit.Grant{Tokens: r.Want, Expires: time.Hour}, nil
}
func (granting) GiveBack(context.Context, *sharedlimit.Request, int) error { return nil }
func (granting) Probe(context.Context) error                               { return nil }

func BenchmarkTake(b *testing.B) {
	rate := ratelimit.PerSecond(1e9)
	for name, s := range map[string]sharedlimit.Settings{
		"store": {Nodes: 1},
		"lease": {Nodes: 1, LeaseFor: time.Second},
		"share": {Nodes: 1, LocalOnly: true},
	} {
		b.Run(name, func(b *testing.B) {
			l := live(b, granting{}, rate, 1_000_000_000, s)
			defer closed(b, l)
			call, ctx := policy.Call{Key: "ann"}, key("ann")
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := l.TakeFor(ctx, time.Now(), &call, 1); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
