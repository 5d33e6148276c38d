//go:build !race

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestAllocFeedback(t *testing.T) {
	g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(1e9), Burst: 1e9})
	empty := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.Every(time.Hour), Burst: 1})
	now := time.Now()
	empty.Allow()
	p := newPipeline(t, g)
	ctx := t.Context()
	for name, op := range map[string]func(){
		"Take":           func() { g.Take(now, 1) },
		"Allow, refused": func() { empty.Allow() },
		"Refund":         func() { g.Refund(now, 1) },
		"pipeline":       func() { _, _ = policy.Do(ctx, p, succeed) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, op), name)
	}
}
