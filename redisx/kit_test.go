package redisx_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
)

// options are those that the docs recommend.
func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 4}
}

// connected returns a client that has a connection already, closed in the end.
func connected(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	require.NoError(tb, c.Ping(tb.Context()).Err())
	return c
}

// guarded returns a client of a server of the test, and the pipeline that it goes through.
func guarded(tb testing.TB, cfg redisx.Config, policies ...policy.Policy) (*redisserver.Server, *redis.Client, *policy.Pipeline) {
	tb.Helper()
	s := redisserver.New(tb)
	c := connected(tb, options(s.Addr))
	p := pipeline(tb, policies...)
	_, err := redisx.Guard(c, p, cfg)
	require.NoError(tb, err)
	return s, c, p
}

// pipeline returns one with a breaker that never opens, and a bulkhead.
func pipeline(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("redis", append([]policy.Policy{
		bulkhead.Semaphore{Limit: 50}, breaker.Config{Window: time.Hour, MinCalls: 1000, SlowAfter: time.Hour},
	}, policies...)...)
	require.NoError(tb, err)
	return p
}

// figures are those of the breaker.
type figures struct{ calls, failures uint64 }

func figuresOf(p *policy.Pipeline) figures {
	for _, s := range p.Snapshot().Policies {
		if s.Breaker != nil {
			return figures{s.Breaker.Calls, s.Breaker.Failures}
		}
	}
	return figures{}
}

// kinds returns how many attempts ended how.
func kinds(p *policy.Pipeline) map[policy.Kind]uint64 {
	m := map[policy.Kind]uint64{}
	for k, n := range p.Snapshot().Attempts {
		if n > 0 {
			m[policy.Kind(k)] = n
		}
	}
	return m
}

// hook is what a user may have below ours.
type hook struct {
	process func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	many    func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.process == nil {
			return next(ctx, cmd)
		}
		return h.process(ctx, cmd, next)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.many == nil {
			return next(ctx, cmds)
		}
		return h.many(ctx, cmds, next)
	}
}
