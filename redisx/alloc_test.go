//go:build !race

package redisx_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/redisx"
)

// What the hook adds to a command and to a pipeline, as in the reference page.
func TestAllocCommand(t *testing.T) {
	h := redisx.New(pipeline(t), redisx.Config{})
	ctx := t.Context()
	one := h.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	cmd := redis.NewStringCmd(ctx, "get", "a")
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = one(ctx, cmd) }), 1.0)
	none := h.ProcessHook(func(context.Context, redis.Cmder) error { return redis.Nil })
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = none(ctx, cmd) }), 1.0)
	many := h.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
	cmds := []redis.Cmder{cmd, cmd}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = many(ctx, cmds) }), 1.0)
}
