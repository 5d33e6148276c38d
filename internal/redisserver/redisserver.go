// Package redisserver starts Redis servers for tests: alone, or as a cluster, on free ports
// of the loopback interface, with the binaries of Debian's packages redis-server and
// redis-tools and without their service. It needs no client library.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Server is a server of a test, which ends with it. Its methods are not safe for concurrent
// use.
type Server struct {
	Addr string // address on the loopback, the same after another Start

	dir  string
	conf string // a file of settings; empty without one
	args []string
	cmd  *exec.Cmd
	own  bool // a process group: a terminal's interrupt is for the program
}

// New starts a redis-server with further arguments, such as "--maxmemory", "1mb". It keeps
// nothing on disk. The test is skipped where there is none.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return WithFile(tb, "", args...)
}

// WithFile is New with a file of settings, which a sentinel needs.
func WithFile(tb testing.TB, conf string, args ...string) *Server {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Addr: "127.0.0.1:" + strconv.Itoa(port), dir: tb.TempDir(), conf: conf, args: args}
	s.Start(tb)
	tb.Cleanup(s.Stop)
	return s
}

// ErrMissing reports that there is no redis-server.
var ErrMissing = errors.New("redisserver: needs the Debian package redis-server")

// Open starts a redis-server for a program, which ends it with [Server.Close].
func Open(args ...string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redisserver")
	if err != nil {
		return nil, fmt.Errorf("redisserver: %w", err)
	}
	s := &Server{Addr: "127.0.0.1:" + strconv.Itoa(port), dir: dir, args: args, own: true}
	if err := s.launch(); err != nil {
		s.Close()
		return nil, err
	}
	for range 1000 {
		if s.answers() {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Close()
	return nil, errors.New("redisserver: no answer")
}

// Close ends a server that was opened, and removes its files.
func (s *Server) Close() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	for {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("redisserver: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port < 55000 { // a cluster adds 10,000 for its bus
			return port, nil
		}
	}
}

// Start starts a server again that has been stopped, with nothing in it.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	switch err := s.launch(); {
	case errors.Is(err, ErrMissing):
		tb.Skip(err)
	case err != nil:
		tb.Fatal(err)
	}
	Eventually(tb, 10*time.Second, "redis-server answers", s.answers)
}

// launch starts the process.
func (s *Server) launch() error {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrMissing
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("redisserver: %w", err)
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", filepath.Join(s.dir, "log")}
	if s.conf != "" {
		args = append([]string{s.conf}, args...)
	}
	s.cmd = exec.Command(bin, append(args, s.args...)...) //nolint:noctx // stopped by its id
	if s.own {
		ownGroup(s.cmd)
	}
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("redisserver: %w", err)
	}
	return nil
}

// answers reports whether the server does. It may have been told to refuse all but PING.
func (s *Server) answers() bool {
	reply, err := s.Do("PING")
	return err == nil && reply != "" && !strings.HasPrefix(reply, "-LOADING")
}

// Stop kills the process, also one that is frozen.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Kill)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Signal sends a signal by name, such as STOP.
func (s *Server) Signal(tb testing.TB, name string) {
	tb.Helper()
	kill := exec.CommandContext(tb.Context(), "kill", "-"+name, strconv.Itoa(s.cmd.Process.Pid)) //nolint:gosec // of a test: its own process
	if out, err := kill.CombinedOutput(); err != nil {
		tb.Fatalf("kill -%s: %v: %s", name, err, out)
	}
}

// Do sends a command, whose arguments have no spaces in them, over a connection of its own,
// and returns the text of the answer, which must be one text.
func (s *Server) Do(command string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second) //nolint:noctx // also asked when the test's context has ended
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // of an open connection: never fails
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if line == "" || line[0] != '$' {
		return strings.TrimPrefix(line, "+"), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return "", fmt.Errorf("redisserver: %s: answered %q", command, line)
	}
	text := make([]byte, n)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

// NewCluster starts three masters with a replica each, the masters first.
func NewCluster(tb testing.TB) []*Server {
	tb.Helper()
	servers := make([]*Server, 6)
	args := []string{"--cluster", "create"}
	for i := range servers {
		servers[i] = New(tb, "--cluster-enabled", "yes", "--cluster-node-timeout", "500", "--repl-diskless-sync-delay", "0")
		args = append(args, servers[i].Addr)
	}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		tb.Skip("needs the Debian package redis-tools")
	}
	out, err := exec.CommandContext(tb.Context(), cli, append(args, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		tb.Fatalf("redis-cli: %v: %s", err, out)
	}
	for _, s := range servers {
		Eventually(tb, 20*time.Second, "every node knows the cluster", func() bool {
			nodes, err := s.Do("CLUSTER NODES")
			replication, _ := s.Do("INFO replication")
			state, _ := s.Do("CLUSTER INFO")
			return err == nil && strings.Count(nodes, "slave ") == 3 &&
				!strings.Contains(replication, "master_link_status:down") && strings.Contains(state, "cluster_state:ok")
		})
	}
	return servers
}

// Addrs returns the addresses of servers.
func Addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return all
}

// Eventually asks until something is so, and returns how long that took.
func Eventually(tb testing.TB, within time.Duration, what string, is func() bool) time.Duration {
	tb.Helper()
	start := time.Now()
	for !is() {
		if time.Since(start) > within {
			tb.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}
