package sharedlimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// A call that is answered from memory allocates nothing.
func TestAllocAnsweredFromMemory(t *testing.T) {
	rate := ratelimit.PerSecond(1e9)
	f := newFake(t, rate, 1_000_000)
	for name, s := range map[string]sharedlimit.Settings{
		"lease": {Nodes: 1, LeaseFor: time.Minute, MaxLease: 1_000_000},
		"share": {Nodes: 1, LocalOnly: true},
	} {
		l := live(t, f, rate, 1_000_000, s)
		call := policy.Call{Key: "ann"}
		ctx := key("ann")
		for range 100_000 { // until the batches are large
			l.TakeFor(ctx, time.Now(), &call, 1)
		}
		assert.Zero(t, testing.AllocsPerRun(1000, func() { l.TakeFor(ctx, time.Now(), &call, 1) }), name)
		closed(t, l)
	}
}
