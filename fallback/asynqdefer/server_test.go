package asynqdefer_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startRedis starts a Redis of the test's own and returns a client of it.
func startRedis(t *testing.T) *redis.Client {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs redis-server")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", t.TempDir()) //nolint:noctx // stopped by its id
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	client := connect(addr)
	t.Cleanup(func() { _ = client.Close() })
	poll(t, "redis-server answers", func() bool { return client.Ping(t.Context()).Err() == nil })
	return client
}

// poll waits for what happens in another process.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited too long: ", what)
		}
	}
}

// startWorker starts a worker process, and returns it.
func startWorker(t *testing.T, addr, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // stopped by its id
	cmd.Env = append(os.Environ(), workerEnv+"="+addr, "BREAKWATER_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { // those that have been killed are waited for already
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return cmd
}

// kill ends a worker without notice, by its id.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	require.Error(t, cmd.Wait())
}

// done returns how often each task was done, as the workers wrote it down.
func done(t *testing.T, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "done-*"))
	require.NoError(t, err)
	counts := map[string]int{}
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		for s := bufio.NewScanner(f); s.Scan(); {
			key, _, _ := strings.Cut(s.Text(), " ")
			counts[key]++
		}
		require.NoError(t, f.Close())
	}
	return counts
}

// expireLeases makes Redis believe that the leases of all tasks in progress have ended long
// ago, so that a test need not wait for it.
func expireLeases(ctx context.Context, client *redis.Client) error {
	const leases = "asynq:{breakwater}:lease"
	ids, err := client.ZRange(ctx, leases, 0, -1).Result()
	if err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	for _, id := range ids {
		if err := client.ZAddXX(ctx, leases, redis.Z{Score: 1, Member: id}).Err(); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
	}
	return nil
}
