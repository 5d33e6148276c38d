package redisx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	s := redisserver.New(t)
	c := connected(t, options(s.Addr))
	for text, want := range map[string]policy.Kind{
		"LOADING Redis is loading the dataset in memory":                    policy.Busy,
		"BUSY Redis is busy running a script":                               policy.Busy,
		"TRYAGAIN Multiple keys request during rehashing of slot":           policy.Busy,
		"OOM command not allowed when used memory > 'maxmemory'":            policy.Busy,
		"ERR max number of clients reached":                                 policy.Busy,
		"CLUSTERDOWN Hash slot not served":                                  policy.Failure,
		"MASTERDOWN Link with MASTER is down":                               policy.Failure,
		"READONLY You can't write against a read only replica.":             policy.Failure,
		"MISCONF Redis is configured to save RDB snapshots":                 policy.Failure,
		"NOREPLICAS Not enough good replicas to write.":                     policy.Failure,
		"MOVED 3999 127.0.0.1:6381":                                         policy.Permanent,
		"ASK 3999 127.0.0.1:6381":                                           policy.Permanent,
		"NOAUTH Authentication required.":                                   policy.Permanent,
		"NOPERM this user has no permissions":                               policy.Permanent,
		"WRONGTYPE Operation against a key holding the wrong kind of value": policy.Permanent,
		"EXECABORT Transaction discarded because of previous errors.":       policy.Permanent,
		"BUSYGROUP Consumer Group name already exists":                      policy.Permanent,
		"BUSYKEY Target key name already exists.":                           policy.Permanent,
		"NOSCRIPT No matching script. Please use EVAL.":                     policy.Permanent,
		"ERR unknown command 'LOADING'":                                     policy.Permanent,
		"CROSSSLOT Keys in request don't hash to the same slot":             policy.Permanent,
	} {
		err := c.Eval(t.Context(), "return redis.error_reply(ARGV[1])", nil, text).Err() // what go-redis makes of it
		require.Error(t, err)
		assert.Equal(t, want, redisx.KindOf(err), text)
		assert.Equal(t, want, redisx.KindOf(fmt.Errorf("wrapped: %w", err)), text)
	}
	for err, want := range map[error]policy.Kind{
		nil: policy.Success, redis.Nil: policy.Success, redis.TxFailedErr: policy.Permanent,
		redis.ErrPoolTimeout: policy.Canceled, redis.ErrPoolExhausted: policy.Canceled, redis.ErrClosed: policy.Canceled,
		io.EOF: policy.NotRun, context.Canceled: policy.NotRun, errors.New("OOM"): policy.NotRun,
	} {
		assert.Equal(t, want, redisx.KindOf(err), "%v", err)
	}
}

// Servers that are in the states which the errors are about.
func TestServersInTrouble(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args    []string
		trouble func(t *testing.T, s *redisserver.Server)
		kind    policy.Kind
		text    string
	}{
		"out of memory": {args: []string{"--maxmemory", "1"}, kind: policy.Busy, text: "OOM"},
		"a replica whose master is away": {
			args: []string{"--replicaof", "127.0.0.1 1"}, kind: policy.Failure, text: "READONLY",
		},
		"no stale data": {
			args: []string{"--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no"}, kind: policy.Failure, text: "MASTERDOWN",
		},
		"not enough replicas": {args: []string{"--min-replicas-to-write", "1"}, kind: policy.Failure, text: "NOREPLICAS"},
		"a script that does not end": {
			args: []string{"--busy-reply-threshold", "1"}, kind: policy.Busy, text: "BUSY",
			trouble: func(t *testing.T, s *redisserver.Server) {
				t.Helper()
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				_, err = c.Write([]byte("*3\r\n$4\r\neval\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n"))
				require.NoError(t, err)
				redisserver.Eventually(t, 5*time.Second, "busy", func() bool {
					answer, _ := s.Do("GET x")
					return strings.HasPrefix(answer, "-BUSY")
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisserver.New(t, tt.args...)
			c := redis.NewClient(options(s.Addr))
			t.Cleanup(func() { _ = c.Close() })
			p := pipeline(t)
			_, err := redisx.Guard(c, p, redisx.Config{})
			require.NoError(t, err)
			if tt.text != "MASTERDOWN" {
				require.NoError(t, c.Ping(t.Context()).Err())
			}
			if tt.trouble != nil {
				tt.trouble(t, s)
			}
			if err = c.Set(t.Context(), "a", 1, 0).Err(); tt.text == "MASTERDOWN" {
				require.ErrorContains(t, err, "READONLY")
				p = pipeline(t)
				c.AddHook(redisx.New(p, redisx.Config{})) // inside: the one that is looked at
				err = c.Get(t.Context(), "a").Err()
			}
			require.ErrorContains(t, err, tt.text)
			assert.Equal(t, uint64(1), kinds(p)[tt.kind], "%v", kinds(p))
			assert.Equal(t, uint64(1), figuresOf(p).failures)
		})
	}

	t.Run("a password that is missing", func(t *testing.T) {
		t.Parallel()
		s := redisserver.New(t)
		_, err := s.Do("CONFIG SET requirepass secret")
		require.NoError(t, err)
		c := redis.NewClient(options(s.Addr))
		t.Cleanup(func() { _ = c.Close() })
		p := pipeline(t)
		_, err = redisx.Guard(c, p, redisx.Config{})
		require.NoError(t, err)
		require.ErrorContains(t, c.Get(t.Context(), "a").Err(), "NOAUTH")
		assert.Equal(t, map[policy.Kind]uint64{policy.Permanent: 1}, kinds(p))
	})

	t.Run("too many clients", func(t *testing.T) {
		t.Parallel()
		s := redisserver.New(t)
		_, err := s.Do("CONFIG SET maxclients 1")
		require.NoError(t, err)
		held, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Close() })
		_, err = held.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		_, err = held.Read(make([]byte, 16)) // it is one of the server's clients
		require.NoError(t, err)
		c := redis.NewClient(options(s.Addr))
		t.Cleanup(func() { _ = c.Close() })
		p := pipeline(t)
		_, err = redisx.Guard(c, p, redisx.Config{})
		require.NoError(t, err)
		require.Error(t, c.Get(t.Context(), "a").Err())
		assert.Equal(t, uint64(1), figuresOf(p).failures, "%v", kinds(p))
	})
}

// What is no answer, and what is an answer about the command.
func TestAnswersOfAHealthyServer(t *testing.T) {
	t.Parallel()
	_, c, p := guarded(t, redisx.Config{})
	ctx := t.Context()
	require.Equal(t, redis.Nil, c.Get(ctx, "none").Err(), "as it is")
	require.NoError(t, c.Set(ctx, "s", "x", 0).Err())
	require.ErrorContains(t, c.LPush(ctx, "s", 1).Err(), "WRONGTYPE")
	require.ErrorContains(t, c.Do(ctx, "nonsense").Err(), "unknown command")
	assert.Equal(t, map[policy.Kind]uint64{policy.Success: 2, policy.Permanent: 2}, kinds(p))

	// The worst command of a pipeline counts; Nil is none.
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Get(ctx, "none")
		pipe.Get(ctx, "s")
		return nil
	})
	require.Equal(t, redis.Nil, err)
	require.NoError(t, cmds[1].Err())
	assert.Equal(t, uint64(3), kinds(p)[policy.Success])
	cmds, err = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Get(ctx, "none")
		pipe.LPush(ctx, "s", 1)
		pipe.Get(ctx, "s")
		return nil
	})
	require.ErrorContains(t, err, "WRONGTYPE", "the worst one's")
	require.Equal(t, redis.Nil, cmds[0].Err())
	require.ErrorContains(t, cmds[1].Err(), "WRONGTYPE")
	require.Equal(t, "x", cmds[2].(*redis.StringCmd).Val())
	assert.Equal(t, uint64(3), kinds(p)[policy.Permanent])
	_, err = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.LPush(ctx, "s", 1)
		pipe.Eval(ctx, "return redis.error_reply('OOM no memory')", nil)
		return nil
	})
	require.ErrorContains(t, err, "OOM")
	assert.Equal(t, uint64(1), kinds(p)[policy.Busy])

	// A transaction that others got in the way of.
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		require.NoError(t, c.Set(ctx, "s", "y", 0).Err())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "s", "z", 0)
			return nil
		})
		return err
	}, "s")
	require.ErrorIs(t, err, redis.TxFailedErr)
	assert.Equal(t, "y", c.Get(ctx, "s").Val())
	assert.Equal(t, uint64(4), kinds(p)[policy.Permanent])
	assert.Equal(t, uint64(1), figuresOf(p).failures)
}

// A user's own judgement comes first, but for what is no error.
func TestOwnClassification(t *testing.T) {
	t.Parallel()
	_, c, p := guarded(t, redisx.Config{Classify: func(cmd redis.Cmder, err error) policy.Kind {
		if cmd.Name() == "lpush" {
			return policy.Throttled
		}
		assert.NotErrorIs(t, err, redis.Nil)
		return policy.NotRun
	}})
	require.NoError(t, c.Set(t.Context(), "s", "x", 0).Err())
	require.Error(t, c.LPush(t.Context(), "s", 1).Err())
	require.ErrorIs(t, c.Get(t.Context(), "none").Err(), redis.Nil)
	require.Error(t, c.SAdd(t.Context(), "s", 1).Err())
	assert.Equal(t, map[policy.Kind]uint64{policy.Success: 2, policy.Throttled: 1, policy.Permanent: 1}, kinds(p))
}

// The error says whose context ended, and why.
func TestErrorOfTheContext(t *testing.T) {
	t.Parallel()
	s, c, p := guarded(t, redisx.Config{})
	s.Signal(t, "STOP")
	why := errors.New("the request was withdrawn")
	ctx, cancel := context.WithCancelCause(t.Context())
	ctx, stop := context.WithTimeout(ctx, 500*time.Millisecond) // go-redis waits for that
	defer stop()
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	err := c.Get(ctx, "a").Err()
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	assert.Equal(t, map[policy.Kind]uint64{policy.Canceled: 1}, kinds(p))
	s.Signal(t, "CONT")
}
