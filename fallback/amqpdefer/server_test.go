package amqpdefer_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/rabbitserver"
)

// startRabbit starts a RabbitMQ of the test's own, and returns its URL, and a function that runs
// its control program.
func startRabbit(t *testing.T) (url string, ctl func(args ...string)) {
	t.Helper()
	s, err := rabbitserver.Start(t.Context())
	if errors.Is(err, rabbitserver.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s.URL(), func(args ...string) {
		_, err := s.Control(t.Context(), args...)
		require.NoError(t, err)
	}
}

// poll waits for what happens in another process.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited too long: ", what)
		}
	}
}

// startWorker starts a worker process, and returns it.
func startWorker(t *testing.T, url, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // stopped by its id
	cmd.Env = append(os.Environ(), workerEnv+"="+url, "BREAKWATER_TEST_DIR="+dir)
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
