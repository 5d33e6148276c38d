package redisx_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
	"github.com/breakwater-go/breakwater/retry"
)

// What go-redis puts together by itself is a pipeline as well, also where a command's answer
// is waited for later.
func TestAutoPipelines(t *testing.T) {
	t.Parallel()
	for name, policies := range map[string][]policy.Policy{
		"plain": {breaker.Config{}},
		"pool":  {breaker.Config{}, bulkhead.Pool{Workers: 4, Queue: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisserver.New(t)
			c := connected(t, options(s.Addr))
			p, err := policy.New("redis", policies...)
			require.NoError(t, err)
			_, err = redisx.Guard(c, p, redisx.Config{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, c.Set(ctx, "s", "x", 0).Err())
			auto, err := c.AutoPipeline()
			require.NoError(t, err)
			later, err := c.AsyncAutoPipeline()
			require.NoError(t, err)
			for _, face := range []redis.Cmdable{auto, later} {
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						key := strconv.Itoa(i)
						assert.NoError(t, face.Set(ctx, key, key, 0).Err())
						assert.Equal(t, key, face.Get(ctx, key).Val())
						assert.ErrorIs(t, face.Get(ctx, "none").Err(), redis.Nil)
						assert.ErrorContains(t, face.LPush(ctx, "s", 1).Err(), "WRONGTYPE")
					})
				}
				wg.Wait()
			}
			assert.Zero(t, figuresOf(p).failures)
			for _, ctl := range p.Controls() {
				if ctl.Commander != nil {
					ctl.Commander.ForceOpen("test", 0)
				}
			}
			assert.ErrorIs(t, auto.Get(ctx, "a").Err(), policy.ErrRejected)
			assert.ErrorIs(t, later.Get(ctx, "a").Err(), policy.ErrRejected)
			require.NoError(t, auto.Close())
			require.NoError(t, later.Close())
			closing, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			require.NoError(t, p.Close(closing))
		})
	}
}

// What writes to memory of its caller runs once, and not beside the caller.
func TestCommandsThatBorrowMemory(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connected(t, options(s.Addr))
	require.NoError(t, c.Set(t.Context(), "a", "some text", 0).Err())
	p := pipeline(t, retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond})
	_, err := redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	var asked atomic.Int64
	c.AddHook(hook{process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if asked.Add(1); ctx.Value(failing{}) != nil {
			return io.EOF
		}
		return next(ctx, cmd)
	}})
	var out strings.Builder
	raw := redis.NewRawWriteToCmd(t.Context(), &out, "get", "a")
	require.NoError(t, c.Process(t.Context(), raw))
	assert.Contains(t, out.String(), "some text")
	require.ErrorIs(t, c.Process(context.WithValue(t.Context(), failing{}, true), redis.NewRawWriteToCmd(t.Context(), &out, "get", "a")), io.EOF)
	assert.EqualValues(t, 2, asked.Load())

	pooled, err := policy.New("pooled", bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	h := redisx.New(pooled, redisx.Config{})
	one := h.ProcessHook(func(context.Context, redis.Cmder) error { panic("sent") })
	require.ErrorContains(t, one(t.Context(), raw), "memory of its caller")
	many := h.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { panic("sent") })
	require.ErrorContains(t, many(t.Context(), []redis.Cmder{raw}), "memory of its caller")
	require.ErrorContains(t, raw.Err(), "memory of its caller")
	require.NoError(t, pooled.Close(t.Context()))
}

type failing struct{}
