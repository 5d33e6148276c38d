package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// server is a redis-server of the test.
type server = redisserver.Server

// startRedis starts a redis-server on a free port of the loopback and stops it in the end.
func startRedis(tb testing.TB, args ...string) *server {
	tb.Helper()
	return redisserver.New(tb, args...)
}

// client returns a client as the docs recommend it, closed in the end.
func client(tb testing.TB, addrs ...string) redis.UniversalClient {
	tb.Helper()
	c := redislimit.NewClient(&redis.UniversalOptions{Addrs: addrs})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// limiter returns a live limiter, closed in the end.
func limiter(tb testing.TB, cfg redislimit.Config) *sharedlimit.Limiter {
	tb.Helper()
	l, err := redislimit.New("", cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// one returns the configuration of a single limit, in a test that is not about timeouts.
func one(c redis.UniversalClient, rule redislimit.Rule) redislimit.Config {
	return redislimit.Config{Client: c, Limits: []redislimit.Limit{{Rule: rule}}, Settings: sharedlimit.Settings{Nodes: 1, Timeout: 10 * time.Second}}
}

// rules returns one of each kind with a limit of 10 in 10 s.
func rules() map[string]redislimit.Rule {
	return map[string]redislimit.Rule{
		"token bucket":   redislimit.TokenBucket{Rate: per(10, 10*time.Second), Burst: 10},
		"fixed window":   redislimit.FixedWindow{Limit: 10, Window: 10 * time.Second},
		"sliding window": redislimit.SlidingWindow{Limit: 10, Window: 10 * time.Second},
		"sliding log":    redislimit.SlidingLog{Limit: 10, Window: 10 * time.Second},
	}
}

func allow(l *sharedlimit.Limiter) bool { return l.Wait(context.Background(), 1) == nil }

func byKey(key string) context.Context {
	return policy.WithCall(context.Background(), policy.Call{Key: key})
}

func shared(l *sharedlimit.Limiter) *policy.SharedSnapshot {
	return l.Snapshot(time.Now()).Limiter.Shared
}

// eventually polls a real server's state.
func eventually(tb testing.TB, within time.Duration, what string, is func() bool) time.Duration {
	tb.Helper()
	return redisserver.Eventually(tb, within, what, is)
}
