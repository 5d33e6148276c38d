package redisx_test

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
)

// ways are the ways in which a command can go to a server: alone, in a pipeline, and in a
// transaction.
var ways = map[string]func(ctx context.Context, c *redis.Client, args ...any) error{
	"command": func(ctx context.Context, c *redis.Client, args ...any) error { return c.Do(ctx, args...).Err() },
	"pipeline": func(ctx context.Context, c *redis.Client, args ...any) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", 1, 0)
			p.Do(ctx, args...)
			p.Get(ctx, "a")
			return nil
		})
		return err
	},
	"transaction": func(ctx context.Context, c *redis.Client, args ...any) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", 1, 0)
			p.Do(ctx, args...)
			return nil
		})
		return err
	},
}

func TestConformance(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Adapter{Pool: true, Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
				t.Helper()
				return start(t, p, c, way)
			}})
		})
	}
}

func start(t *testing.T, p *policy.Pipeline, c conformance.Case, way func(context.Context, *redis.Client, ...any) error) (call func(context.Context) error, stop func()) {
	t.Helper()
	s := redisserver.New(t, "--enable-debug-command", "local")
	o := options(s.Addr)
	o.ReadTimeout = 300 * time.Millisecond // a canceled caller waits for that, without a pool of workers
	client := redis.NewClient(o)
	require.NoError(t, client.Ping(t.Context()).Err())
	_, err := redisx.Guard(client, p, redisx.Config{})
	require.NoError(t, err)
	args := []any{"get", "a"}
	switch c {
	case conformance.Success, conformance.Refused:
	case conformance.Failure:
		args = []any{"eval", "return redis.error_reply('CLUSTERDOWN the cluster is down')", 0}
	case conformance.Slow:
		args = []any{"debug", "sleep", conformance.Slowness.Seconds()}
	case conformance.Canceled, conformance.Deadline:
		s.Signal(t, "STOP")
	case conformance.Panic:
		client.AddHook(hook{
			process: func(context.Context, redis.Cmder, redis.ProcessHook) error { panic("a hook") },
			many:    func(context.Context, []redis.Cmder, redis.ProcessPipelineHook) error { panic("a hook") },
		})
	case conformance.Gone:
		s.Stop()
	case conformance.Abandoned:
	}
	call = func(ctx context.Context) error {
		if c == conformance.Abandoned { // what is read in parts
			it := client.Scan(ctx, 0, "", 1).Iterator()
			it.Next(ctx)
			return it.Err()
		}
		if err := way(ctx, client, args...); err != redis.Nil { //nolint:errorlint // as go-redis has it
			return err
		}
		return nil
	}
	return call, func() {
		_ = client.Close()
		s.Stop()
	}
}

// A pipeline whose deadline passes when the server has answered a part of it: it was one
// attempt that timed out, and go-redis says so of each command.
func TestPipelineCutHalfWay(t *testing.T) {
	t.Parallel()
	s, answered := halfServer(t)
	c := connected(t, options(s))
	p := pipeline(t)
	_, err := redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var first, rest redis.Cmder
	_, err = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		first, rest = pipe.Set(ctx, "a", 1, 0), pipe.Set(ctx, "hang", 1, 0)
		return nil
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, first.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, rest.Err(), context.DeadlineExceeded)
	assert.Equal(t, map[policy.Kind]uint64{policy.Timeout: 1}, kinds(p))
	assert.Equal(t, figures{calls: 1, failures: 1}, figuresOf(p))
	require.NoError(t, c.Set(t.Context(), "a", 1, 0).Err(), "the connection was given up, not the client")
	assert.GreaterOrEqual(t, answered.Load(), int64(2))
}

// halfServer answers everything with OK, but for what is said about the key "hang": nothing
// more on that connection.
func halfServer(t *testing.T) (addr string, answered *atomic.Int64) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answered = new(atomic.Int64)
	var wg sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		for hang := false; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
			var args []string
			for range n {
				_, _ = r.ReadString('\n')
				arg, _ := r.ReadString('\n')
				args = append(args, strings.TrimSpace(arg))
			}
			hang = hang || slices.Contains(args, "hang")
			switch {
			case hang:
			case strings.EqualFold(args[0], "hello"):
				_, _ = c.Write([]byte("-ERR unknown command\r\n"))
			default:
				answered.Add(1)
				_, _ = c.Write([]byte("+OK\r\n"))
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String(), answered
}
