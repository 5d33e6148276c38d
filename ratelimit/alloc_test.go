//go:build !race

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
)

func TestAllocNothing(t *testing.T) {
	b, empty, now := newBucket(t, ample), newBucket(t, scarce), time.Now()
	empty.Allow()
	p := newPipeline(t, b)
	ctx := t.Context()
	for name, op := range map[string]func(){
		"Allow":          func() { b.Allow() },
		"Allow, refused": func() { empty.Allow() },
		"Take":           func() { b.Take(now, 1) },
		"Take, refused":  func() { empty.Take(now, 1) },
		"Refund":         func() { b.Refund(now, 1) },
		"Tokens":         func() { b.Tokens(now) },
		"Wait, no wait":  func() { _ = b.Wait(ctx, 1) },
		"Reserve, no wait": func() {
			r := b.Reserve(now, 1)
			r.Cancel(now)
		},
		// The space for the reservation is used again.
		"Reserve and Cancel": func() {
			r := empty.Reserve(now, 1)
			r.Cancel(now)
		},
		"pipeline": func() { _, _ = policy.Do(ctx, p, succeed) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, op), name)
	}
}

// A refusal in a pipeline costs its error.
func TestAllocRefusal(t *testing.T) {
	b := newBucket(t, scarce)
	b.Allow()
	p := newPipeline(t, b)
	ctx := t.Context()
	assert.InDelta(t, 1, testing.AllocsPerRun(1000, func() { _, _ = policy.Do(ctx, p, succeed) }), 0)
}
