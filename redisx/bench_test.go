package redisx_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/redisx"
)

// BenchmarkHook is what the hook adds: there is no server.
func BenchmarkHook(b *testing.B) {
	h := redisx.New(pipeline(b), redisx.Config{})
	ctx := b.Context()
	cmd := redis.NewStringCmd(ctx, "get", "a")
	for name, err := range map[string]error{"value": nil, "nil": redis.Nil} {
		b.Run(name, func(b *testing.B) {
			process := h.ProcessHook(func(context.Context, redis.Cmder) error { return err })
			b.ReportAllocs()
			for b.Loop() {
				_ = process(ctx, cmd)
			}
		})
	}
	b.Run("pipeline", func(b *testing.B) {
		process := h.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
		cmds := []redis.Cmder{cmd, cmd, cmd}
		b.ReportAllocs()
		for b.Loop() {
			_ = process(ctx, cmds)
		}
	})
}

// BenchmarkGet is a command with a server of the benchmark, without the hook and with it.
func BenchmarkGet(b *testing.B) {
	s := redisserver.New(b)
	for _, name := range []string{"plain", "guarded"} {
		b.Run(name, func(b *testing.B) {
			c := connected(b, options(s.Addr))
			if name == "guarded" {
				if _, err := redisx.Guard(c, pipeline(b), redisx.Config{}); err != nil {
					b.Fatal(err)
				}
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				_ = c.Get(ctx, "a").Err()
			}
		})
	}
}
