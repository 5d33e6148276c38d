package amqpdefer_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rabbit = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// startRabbit starts a RabbitMQ of the test's own, with a port mapper of its own, and
// returns its URL, and a function that runs its control program.
func startRabbit(t *testing.T) (url string, ctl func(args ...string)) {
	t.Helper()
	if _, err := os.Stat(rabbit); err != nil || os.Getuid() != 0 {
		t.Skip("needs rabbitmq-server, and to be root")
	}
	dir := t.TempDir()
	ports := make([]string, 3)
	for i := range ports {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }() // so that all differ
		_, ports[i], err = net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	env := append(
		os.Environ(),
		"HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+ports[0],
		"RABBITMQ_NODENAME=test"+ports[1]+"@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+ports[1], "RABBITMQ_DIST_PORT="+ports[2],
		"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"), "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	)
	start := func(cmd *exec.Cmd) {
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell, which starts the node
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing in it is to be kept
			_ = cmd.Wait()
		})
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugins"), []byte("[].\n"), 0o600))
	start(exec.Command("epmd", "-port", ports[0], "-address", "127.0.0.1")) //nolint:noctx // stopped by its id
	start(exec.Command(rabbit))                                             //nolint:noctx // likewise
	url = "amqp://guest:guest@127.0.0.1:" + ports[1] + "/"
	poll(t, "rabbitmq-server answers", func() bool {
		c, err := amqp.Dial(url)
		if err != nil {
			return false
		}
		return assert.NoError(t, c.Close())
	})
	return url, func(args ...string) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(rabbit), "rabbitmqctl"), args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
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
