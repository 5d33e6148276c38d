//go:build !race

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestAllocSystem(t *testing.T) {
	calm, full := &gauge{}, &gauge{cpu: 1}
	cfg := ratelimit.System{CPU: calm.readCPU, MaxDelay: ratelimit.NoDelay}
	s := newShedder(t, cfg)
	cfg.CPU = full.readCPU
	busy, now := newShedder(t, cfg), time.Now().Add(time.Minute)
	p := newPipeline(t, s)
	ctx := t.Context()
	for name, op := range map[string]func(){
		"Acquire": func() {
			_ = s.Acquire(now, policy.PriorityNormal)
			s.Release(now, policy.PriorityNormal, time.Millisecond)
		},
		"Acquire, overloaded": func() {
			_ = busy.Acquire(now, policy.PriorityNormal)
			busy.Release(now, policy.PriorityNormal, time.Millisecond)
		},
		"pipeline": func() { _, _ = policy.Do(ctx, p, succeed) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, op), name)
	}
	// The Go scheduler's delay is read in memory that is used again.
	zero := newShedder(t, ratelimit.System{Sample: time.Millisecond})
	for range 3 { // it takes a few readings until it has that memory
		now = now.Add(time.Second)
		_ = zero.Acquire(now, policy.PriorityNormal)
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		now = now.Add(time.Second)
		_ = zero.Acquire(now, policy.PriorityCritical)
		zero.Release(now, policy.PriorityCritical, -1)
	}))
}
