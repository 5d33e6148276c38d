//go:build !race

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestAllocAll(t *testing.T) {
	b := newBundle(t, ratelimit.All{Limits: []policy.Policy{
		ratelimit.Keyed{Rate: ratelimit.PerSecond(1e9), Burst: 1e9}, ample,
	}})
	full := newBundle(t, ratelimit.All{Limits: []policy.Policy{ample, ratelimit.TokenBucket{Name: "scarce", Rate: ratelimit.Every(time.Hour), Burst: 1}}})
	now, call := time.Now(), &policy.Call{Key: "a"}
	full.Take(now, 1)
	b.Take(now, 1)
	p := newPipeline(t, b)
	ctx := policy.WithCall(t.Context(), *call)
	_, _ = policy.Do(ctx, p, succeed)
	for name, op := range map[string]func(){
		"Take":          func() { b.Take(now, 1) },
		"Take, refused": func() { full.Take(now, 1) },
		"TakeFor":       func() { b.TakeFor(now, call) },
		"RefundFor":     func() { b.RefundFor(now, call) },
		"pipeline":      func() { _, _ = policy.Do(ctx, p, succeed) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, op), name)
	}
}
