package redisx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
	"github.com/breakwater-go/breakwater/retry"
)

// What would work against the pipeline is refused, all at once.
func TestGuardChecksTheClient(t *testing.T) {
	t.Parallel()
	p := pipeline(t)
	fields := func(err error) (all []string) {
		if err == nil {
			return nil
		}
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			ce := &policy.ConfigError{}
			require.ErrorAs(t, err, &ce)
			all = append(all, ce.Field)
		}
		return all
	}
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _, _, _ = plain.Close(), cluster.Close(), ring.Close() })
	_, err := redisx.Guard(plain, p, redisx.Config{})
	assert.Equal(t, []string{"Client.ContextTimeoutEnabled", "Client.MaxRetries", "Client.DialerRetries"}, fields(err))
	_, err = redisx.Guard(plain, p, redisx.Config{ClientRetries: true})
	assert.Equal(t, []string{"Client.ContextTimeoutEnabled"}, fields(err))
	_, err = redisx.Guard(cluster, p, redisx.Config{})
	assert.Equal(t, []string{"Client.ContextTimeoutEnabled", "Client.DialerRetries"}, fields(err))
	_, err = redisx.Guard(nil, p, redisx.Config{})
	assert.Equal(t, []string{"Client"}, fields(err))
	h, err := redisx.Guard(ring, p, redisx.Config{})
	require.NoError(t, err)
	assert.Equal(t, "connections", h.Config().Name)
	_, err = redisx.Guard(ring, p, redisx.Config{})
	require.ErrorContains(t, err, "redis.connections", "two clients need two names")
	h.Detach()
	_, err = redisx.Guard(ring, p, redisx.Config{})
	require.NoError(t, err)
}

func TestNilPipelineChangesNothing(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connected(t, options(s.Addr))
	_, err := redisx.Guard(c, nil, redisx.Config{})
	require.NoError(t, err)
	require.NoError(t, c.Set(t.Context(), "a", 1, 0).Err())
	_, err = c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "a"); return nil })
	require.NoError(t, err)
}

// A refusal is the error of the command, and of each command of a pipeline or transaction,
// and PubSub does not notice.
func TestRefused(t *testing.T) {
	t.Parallel()
	_, c, p := guarded(t, redisx.Config{})
	ctx := t.Context()
	for _, ctl := range p.Controls() {
		if ctl.Commander != nil {
			ctl.Commander.ForceOpen("test", 0)
		}
	}
	err := c.Get(ctx, "a").Err()
	require.ErrorIs(t, err, breaker.ErrOpen)
	re := &policy.RejectedError{}
	require.ErrorAs(t, err, &re)
	assert.Equal(t, policy.ReasonForced, re.Reason)
	for name, pipe := range map[string]redis.Pipeliner{"pipeline": c.Pipeline(), "transaction": c.TxPipeline()} {
		pipe.Set(ctx, "a", 1, 0)
		pipe.Get(ctx, "a")
		cmds, err := pipe.Exec(ctx)
		require.ErrorIs(t, err, policy.ErrRejected, name)
		require.Len(t, cmds, 2)
		for _, cmd := range cmds {
			require.ErrorIs(t, cmd.Err(), policy.ErrRejected, name)
		}
	}
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	_, err = sub.Receive(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, c.Publish(ctx, "news", "x").Err(), policy.ErrRejected)
}

// No free connection is our own saturation: nobody counts it against the server.
func TestNoFreeConnection(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	o := options(s.Addr)
	o.PoolSize, o.PoolTimeout, o.PipelinePoolSize = 1, 50*time.Millisecond, -1
	c := connected(t, o)
	var rejected atomic.Int64
	p := pipeline(t, policy.Observe(policy.ObserverFunc(func(e policy.Event) {
		if e.Kind == policy.EventRejected && e.Policy == "connections" {
			rejected.Add(1)
		}
	})))
	_, err := redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	connections := func() policy.PolicySnapshot {
		list := p.Snapshot().Policies
		return list[len(list)-1]
	}
	assert.Equal(t, 1, connections().Bulkhead.Limit)
	var wg sync.WaitGroup
	wg.Go(func() { c.BLPop(t.Context(), 10*time.Second, "queue") })
	redisserver.Eventually(t, 5*time.Second, "the connection is in use", func() bool { return connections().Bulkhead.InFlight == 1 })

	err = c.Get(t.Context(), "a").Err()
	require.ErrorIs(t, err, redis.ErrPoolTimeout)
	re := &policy.RejectedError{}
	require.ErrorAs(t, err, &re)
	assert.Equal(t, "connections", re.Policy)
	assert.Equal(t, "redis", re.Dependency)
	assert.Equal(t, policy.ReasonWait, re.Reason)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = c.Get(ctx, "a").Err()
	require.ErrorIs(t, err, redis.ErrPoolTimeout, "a deadline that is earlier says the same")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Get(t.Context(), "a")
		pipe.Get(t.Context(), "b")
		return nil
	})
	require.ErrorIs(t, err, policy.ErrRejected)
	require.ErrorIs(t, cmds[1].Err(), policy.ErrRejected)
	assert.Equal(t, figures{}, figuresOf(p))
	assert.Equal(t, uint64(3), connections().Rejected[policy.ReasonWait])
	assert.EqualValues(t, 3, rejected.Load())

	_, err = s.Do("RPUSH queue x")
	require.NoError(t, err)
	wg.Wait()
	require.NoError(t, c.Set(t.Context(), "a", 1, 0).Err())
}

// A command that blocks is neither cut by the pipeline's timeouts nor slow.
func TestBlockingCommands(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connected(t, options(s.Addr))
	p, err := policy.New("redis", policy.Timeouts{Total: 100 * time.Millisecond, Attempt: 50 * time.Millisecond},
		breaker.Config{Window: time.Hour, MinCalls: 1000, SlowAfter: 150 * time.Millisecond})
	require.NoError(t, err)
	_, err = redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	time.AfterFunc(300*time.Millisecond, func() { _, _ = s.Do("RPUSH queue x") })
	got, err := c.BLPop(t.Context(), 10*time.Second, "queue").Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"queue", "x"}, got)
	require.ErrorIs(t, c.BLPop(t.Context(), time.Second, "queue").Err(), redis.Nil)
	_, err = c.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 300 * time.Millisecond}).Result()
	require.ErrorIs(t, err, redis.Nil)
	require.NoError(t, c.Wait(t.Context(), 1, 300*time.Millisecond).Err())
	for _, ps := range p.Snapshot().Policies {
		if ps.Breaker != nil {
			assert.Equal(t, uint64(4), ps.Breaker.Calls)
			assert.Zero(t, ps.Breaker.Slow)
			assert.Zero(t, ps.Breaker.Failures)
		}
	}

	// But the caller's own context counts.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.BLPop(ctx, 10*time.Second, "queue").Err(), context.DeadlineExceeded)

	ctx = t.Context()
	for cmd, want := range map[redis.Cmder]bool{
		redis.NewCmd(ctx, "XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", "$"): true,
		redis.NewCmd(ctx, "xread", "streams", "block", "$"):                     false,
		redis.NewCmd(ctx, "xreadgroup", "group", "g", "c", "block", 5):          true,
		redis.NewCmd(ctx, "BZPOPMIN", "z", 0):                                   true,
		redis.NewCmd(ctx, "get", "blpop"):                                       false,
	} {
		assert.Equal(t, want, redisx.Blocking(cmd), "%v", cmd.Args())
	}
}

// A hedge beside a command that waits would wait as well.
func TestBlockingCommandsAreNotHedged(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connected(t, options(s.Addr))
	p, err := policy.New("redis", retry.Hedge{Delay: time.Millisecond, MaxHedges: 2})
	require.NoError(t, err)
	_, err = redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	_, err = c.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"s", "$"}, Block: 100 * time.Millisecond}).Result()
	require.ErrorIs(t, err, redis.Nil)
	for _, ps := range p.Snapshot().Policies {
		if ps.Hedge != nil {
			assert.Zero(t, ps.Hedge.Started)
		}
	}
}

// refusal is an error of the server.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// Only what may be repeated is, unless the server has certainly not run it.
func TestRetries(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	const attempts = 3
	get := func(ctx context.Context, c redis.Cmdable) error { return c.Get(ctx, "a").Err() }
	incr := func(ctx context.Context, c redis.Cmdable) error { return c.Incr(ctx, "n").Err() }
	eval := func(ctx context.Context, c redis.Cmdable) error { return c.Eval(ctx, "return 1", nil).Err() }
	many := func(fs ...func(ctx context.Context, c redis.Cmdable) error) func(context.Context, redis.Cmdable) error {
		return func(ctx context.Context, c redis.Cmdable) error {
			_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, f := range fs {
					_ = f(ctx, pipe)
				}
				return nil
			})
			return err
		}
	}
	for name, tt := range map[string]struct {
		call func(ctx context.Context, c redis.Cmdable) error
		err  error
		cfg  redisx.Config
		ctx  policy.Call
		want int
	}{
		"a read":                             {call: get, err: io.EOF, want: attempts},
		"a read that times out":              {call: get, err: context.DeadlineExceeded, want: attempts},
		"a write":                            {call: incr, err: io.EOF, want: 1},
		"a write while LOADING":              {call: incr, err: refusal("LOADING x"), want: attempts},
		"a write to a replica":               {call: incr, err: refusal("READONLY x"), want: attempts},
		"a write that is wrong":              {call: incr, err: refusal("WRONGTYPE x"), want: 1},
		"a read that is wrong":               {call: get, err: refusal("WRONGTYPE x"), want: 1},
		"a script":                           {call: eval, err: refusal("OOM x"), want: 1},
		"a script while BUSY":                {call: eval, err: refusal("BUSY x"), want: attempts},
		"a pipeline of reads":                {call: many(get, get), err: io.EOF, want: attempts},
		"a pipeline with a write":            {call: many(get, incr), err: io.EOF, want: 1},
		"a pipeline of writes while LOADING": {call: many(incr, incr), err: refusal("LOADING x"), want: attempts},
		"a pipeline with a script":           {call: many(incr, eval), err: refusal("OOM x"), want: 1},
		"a write by its author's word":       {call: incr, err: io.EOF, ctx: policy.Call{Idempotent: true}, want: attempts},
		"a read that is not to be retried":   {call: get, err: io.EOF, ctx: policy.Call{NoRetry: true}, want: 1},
		"a write that policy allows": {
			call: incr, err: io.EOF, want: attempts,
			cfg: redisx.Config{Idempotent: func(redis.Cmder) bool { return true }},
		},
		"what is left to go-redis": {call: get, err: io.EOF, cfg: redisx.Config{ClientRetries: true}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connected(t, options(s.Addr))
			p := pipeline(t, retry.Config{MaxAttempts: attempts, BaseDelay: time.Millisecond})
			_, err := redisx.Guard(c, p, tt.cfg)
			require.NoError(t, err)
			var asked atomic.Int64
			var last atomic.Bool
			c.AddHook(hook{
				process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if asked.Add(1); last.Load() {
						return next(ctx, cmd)
					}
					return tt.err
				},
				many: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					if asked.Add(1); last.Load() {
						return next(ctx, cmds)
					}
					for _, cmd := range cmds {
						cmd.SetErr(tt.err)
					}
					return tt.err
				},
			})
			ctx := t.Context()
			if tt.ctx != (policy.Call{}) {
				ctx = policy.WithCall(ctx, tt.ctx)
			}
			require.ErrorIs(t, tt.call(ctx, c), tt.err)
			assert.EqualValues(t, tt.want, asked.Load())
		})
	}
}

// A retry leaves nothing of the attempt before it.
func TestRetryThatSucceeds(t *testing.T) {
	t.Parallel()
	_, c, _ := guarded(t, redisx.Config{}, retry.Config{MaxAttempts: 2, BaseDelay: time.Millisecond})
	require.NoError(t, c.Set(t.Context(), "a", "x", 0).Err())
	var n atomic.Int64
	c.AddHook(hook{
		process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if n.Add(1)%2 == 1 {
				cmd.SetErr(io.EOF)
				return io.EOF
			}
			return next(ctx, cmd)
		},
		many: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if n.Add(1)%2 == 1 {
				for _, cmd := range cmds {
					cmd.SetErr(io.EOF)
				}
				return io.EOF
			}
			return next(ctx, cmds)
		},
	})
	require.Equal(t, "x", c.Get(t.Context(), "a").Val())
	cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Get(t.Context(), "none")
		pipe.Get(t.Context(), "a")
		return nil
	})
	require.ErrorIs(t, err, redis.Nil)
	require.ErrorIs(t, cmds[0].Err(), redis.Nil)
	require.NoError(t, cmds[1].Err())
	require.Equal(t, "x", cmds[1].(*redis.StringCmd).Val())
}

// What a connection needs before its first command takes no permit of its own.
func TestSetupOfConnections(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	o := options(s.Addr)
	o.DB, o.ClientName = 3, "me"
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return cn.Set(ctx, "connected", 1, 0).Err() }
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	p, err := policy.New("redis", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	_, err = redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	require.Equal(t, "1", c.Get(t.Context(), "connected").Val())
	_, err = c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error { pipe.Get(t.Context(), "connected"); return nil })
	require.NoError(t, err)
	assert.Equal(t, map[policy.Kind]uint64{policy.Success: 2}, kinds(p))
}

// On a pool, and beside a hedge, each attempt has commands of its own, and the caller gets
// those that were answered.
func TestAttemptsBesideTheCaller(t *testing.T) {
	t.Parallel()
	for name, policies := range map[string][]policy.Policy{
		"pool":  {bulkhead.Pool{Workers: 4, Queue: 100}},
		"hedge": {retry.Hedge{Delay: time.Microsecond, MaxHedges: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisserver.New(t)
			c := connected(t, options(s.Addr))
			p, err := policy.New("redis", policies...)
			require.NoError(t, err)
			_, err = redisx.Guard(c, p, redisx.Config{})
			require.NoError(t, err)
			ctx := t.Context()
			require.NoError(t, c.HSet(ctx, "h", "a", "1", "b", "2").Err())
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for j := range 20 {
						key := fmt.Sprintf("k%d-%d", i, j)
						assert.NoError(t, c.Set(ctx, key, key, 0).Err())
						assert.Equal(t, key, c.Get(ctx, key).Val())
						assert.Equal(t, map[string]string{"a": "1", "b": "2"}, c.HGetAll(ctx, "h").Val())
						assert.ErrorIs(t, c.Get(ctx, "none").Err(), redis.Nil)
						cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
							pipe.Get(ctx, key)
							pipe.Get(ctx, "none")
							pipe.HGetAll(ctx, "h")
							return nil
						})
						assert.ErrorIs(t, err, redis.Nil)
						assert.Equal(t, key, cmds[0].(*redis.StringCmd).Val())
						assert.ErrorIs(t, cmds[1].Err(), redis.Nil)
						assert.Len(t, cmds[2].(*redis.MapStringStringCmd).Val(), 2)
						cmds, err = c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
							pipe.Set(ctx, key, "tx", 0)
							pipe.Get(ctx, key)
							return nil
						})
						assert.NoError(t, err)
						assert.Equal(t, "tx", cmds[1].(*redis.StringCmd).Val())
					}
				})
			}
			wg.Wait()
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			require.NoError(t, p.Close(closing))
		})
	}
}

// A fallback's value is the answer of a command whose type it has.
func TestFallback(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	failing := hook{
		process: func(context.Context, redis.Cmder, redis.ProcessHook) error { return down },
		many: func(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
			for _, c := range cmds {
				c.SetErr(down)
			}
			return down
		},
	}
	for name, tt := range map[string]struct {
		value any
		check func(t *testing.T, c *redis.Client)
	}{
		"text": {value: "guest", check: func(t *testing.T, c *redis.Client) {
			t.Helper()
			v, err := c.Get(t.Context(), "a").Result()
			require.NoError(t, err)
			assert.Equal(t, "guest", v)
			require.ErrorContains(t, c.Incr(t.Context(), "n").Err(), "no answer to incr")
		}},
		"number": {value: int64(7), check: func(t *testing.T, c *redis.Client) {
			t.Helper()
			v, err := c.Incr(t.Context(), "n").Result()
			require.NoError(t, err)
			assert.EqualValues(t, 7, v)
		}},
		"list": {value: []any{"guest", int64(7)}, check: func(t *testing.T, c *redis.Client) {
			t.Helper()
			cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
				pipe.Get(t.Context(), "a")
				pipe.Incr(t.Context(), "n")
				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, "guest", cmds[0].(*redis.StringCmd).Val())
			require.NoError(t, cmds[1].Err())
			_, err = c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error { pipe.Get(t.Context(), "a"); return nil })
			require.ErrorContains(t, err, "no list of 1 answers")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c, _ := guarded(t, redisx.Config{}, fallback.Value(tt.value))
			c.AddHook(failing)
			tt.check(t, c)
		})
	}
}
