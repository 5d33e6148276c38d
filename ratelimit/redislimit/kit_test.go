package redislimit_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// server is a redis-server of the test.
type server struct {
	addr string
	dir  string
	conf string // empty without a file
	args []string
	cmd  *exec.Cmd
}

// startRedis starts a redis-server on a free port of the loopback and stops it in the end.
func startRedis(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := &server{addr: "127.0.0.1:" + strconv.Itoa(freePort(tb)), dir: tb.TempDir(), args: args}
	s.start(tb)
	tb.Cleanup(s.stop)
	return s
}

// startConfigured is startRedis with a file of settings.
func startConfigured(tb testing.TB, conf string, args ...string) *server {
	tb.Helper()
	s := &server{addr: "127.0.0.1:" + strconv.Itoa(freePort(tb)), dir: tb.TempDir(), conf: conf, args: args}
	s.start(tb)
	tb.Cleanup(s.stop)
	return s
}

func freePort(tb testing.TB) int {
	tb.Helper()
	for {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
		require.NoError(tb, err)
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(tb, l.Close())
		if port < 55000 { // a cluster adds 10,000 for its bus
			return port
		}
	}
}

func (s *server) start(tb testing.TB) {
	tb.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Skip("needs the Debian package redis-server")
	}
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(tb, err)
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", filepath.Join(s.dir, "log")}
	if s.conf != "" {
		args = append([]string{s.conf}, args...)
	}
	args = append(args, s.args...)
	s.cmd = exec.Command(bin, args...) //nolint:noctx // stopped by its id, after the test's context has ended
	require.NoError(tb, s.cmd.Start())
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	defer c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c.Ping(tb.Context()).Err() == nil {
			return
		}
		require.True(tb, time.Now().Before(deadline), "redis-server does not answer")
	}
}

// stop ends the process, also one that is frozen.
func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Kill)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// signal sends a signal by name, such as STOP.
func (s *server) signal(tb testing.TB, name string) {
	tb.Helper()
	require.NoError(tb, exec.CommandContext(tb.Context(), "kill", "-"+name, strconv.Itoa(s.cmd.Process.Pid)).Run())
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
	start := time.Now()
	for !is() {
		require.Less(tb, time.Since(start), within, what)
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}
