package rls_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/rls"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// referenceVersion is that of github.com/envoyproxy/ratelimit.
const referenceVersion = "v1.4.1-0.20260122083618-3fb702589d36"

// referenceServer returns the reference server, which is built once for all checkouts.
func referenceServer(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	bin := filepath.Join(cache, "breakwater", "bin", "ratelimit-"+referenceVersion+"-"+runtime.Version())
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", "github.com/envoyproxy/ratelimit/src/service_cmd@"+referenceVersion)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the reference server cannot be built: %v\n%s", err, out)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(bin), 0o755))
	data, err := os.ReadFile(filepath.Join(dir, "service_cmd"))
	require.NoError(t, err)
	tmp := bin + "-" + strconv.Itoa(os.Getpid())
	require.NoError(t, os.WriteFile(tmp, data, 0o755))
	require.NoError(t, os.Rename(tmp, bin))
	return bin
}

// run starts a program and stops it in the end.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

const rules = `
domain: shop
descriptors:
  - key: route
    value: /a
    rate_limit:
      unit: hour
      requests_per_unit: 10
  - key: tier
    value: free
    descriptors:
      - key: user
        rate_limit:
          unit: hour
          requests_per_unit: 3
`

// Three limiters stand for three nodes that ask the reference server.
func TestReferenceServer(t *testing.T) {
	t.Parallel()
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs the Debian package redis-server")
	}
	server := referenceServer(t)
	dir, redisPort, grpcPort := t.TempDir(), freePort(t), freePort(t)
	run(t, exec.Command(redis, "--bind", "127.0.0.1", "--port", redisPort, "--dir", dir, "--save", "", "--appendonly", "no")) //nolint:noctx // stopped by its id
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "shop", "config"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop", "config", "shop.yaml"), []byte(rules), 0o600))
	cmd := exec.Command(server) //nolint:noctx // stopped by its id
	cmd.Env = append(os.Environ(),
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT="+freePort(t), "GRPC_PORT="+grpcPort, "DEBUG_PORT="+freePort(t),
		"USE_STATSD=false", "LOG_LEVEL=error", "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:"+redisPort,
		"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=shop", "RUNTIME_WATCH_ROOT=false")
	eventually(t, 10*time.Second, "redis-server answers", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+redisPort)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	run(t, cmd)

	limit := func(l rls.Limit, n int) rls.Limit {
		l.Rate, l.Burst = ratelimit.Per(float64(n), time.Hour), n
		return l
	}
	var nodes []*sharedlimit.Limiter
	for range 3 {
		cfg := config("127.0.0.1:"+grpcPort, limit(route, 10), limit(user, 3))
		cfg.Settings.StandIn = sharedlimit.Refuse
		nodes = append(nodes, live(t, cfg))
	}
	call := func(i int, key string) error {
		return nodes[i%3].Wait(policy.WithCall(t.Context(), policy.Call{Key: key}), 1)
	}
	passed := 0
	eventually(t, 20*time.Second, "the reference server answers", func() bool {
		err := call(0, "first")
		if err == nil {
			passed++
		}
		return err == nil
	})
	for i := range 30 {
		if err := call(i, "user"+strconv.Itoa(i)); err == nil {
			passed++
		} else {
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			part := &ratelimit.PartError{}
			require.ErrorAs(t, err, &part)
			assert.Equal(t, "route", part.Part)
			re := &policy.RejectedError{}
			require.ErrorAs(t, err, &re)
			assert.Positive(t, re.RetryAfter)
			assert.LessOrEqual(t, re.RetryAfter, time.Hour)
		}
	}
	assert.Equal(t, 10, passed)
	for _, n := range nodes[1:] {
		assert.Zero(t, shared(n).Errors)
		assert.Equal(t, policy.SharedModeShared, shared(n).Mode)
	}
}
