// Package pgserver starts PostgreSQL servers for tests and demonstrations: each a cluster of
// its own in a temporary directory, on a free port of the loopback interface, with the
// binaries of Debian's package postgresql and without its service. It needs no driver.
package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrMissing reports that PostgreSQL is not installed.
var ErrMissing = errors.New("pgserver: there is no PostgreSQL: install Debian's package postgresql")

// Config configures a [Server]. The zero value is valid.
type Config struct {
	// MaxConnections is the setting of that name. Zero means 50.
	MaxConnections int

	// Settings are further settings, such as "deadlock_timeout": "10ms".
	Settings map[string]string
}

// Server is a running PostgreSQL. It is made by [Start]. Its methods are not safe for
// concurrent use.
type Server struct {
	port int
	dir  string
	cmd  *exec.Cmd
	args []string
	bin  string
	log  *tail
	done chan struct{} // closed when the process has ended
}

// Start makes a cluster and starts a server on it, which takes about a second. Who starts it
// ends it with [Server.Stop]: it goes on otherwise, also when this process has ended. Data is
// not kept safe: the disk is not waited for.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgserver")
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	s := &Server{dir: dir, bin: bin}
	if err := s.begin(ctx, cfg); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) begin(ctx context.Context, cfg Config) error {
	if err := giveAway(s.dir); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N") //nolint:gosec // found in places that are listed below
	initdb.Dir = s.dir
	if err := asUser(initdb); err != nil {
		return err
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("pgserver: initdb: %w: %s", err, out)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
	_ = l.Close()
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": "", // nothing outside of the directory
		"max_connections":         strconv.Itoa(max(cfg.MaxConnections, 0)),
		"fsync":                   "off",
		"full_page_writes":        "off",
		"autovacuum":              "off",
		"shared_buffers":          "16MB",
	}
	if cfg.MaxConnections == 0 {
		settings["max_connections"] = "50"
	}
	maps.Copy(settings, cfg.Settings)
	s.args = []string{"-D", s.data()}
	for k, v := range settings {
		s.args = append(s.args, "-c", k+"="+v)
	}
	return s.Restart(ctx)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Addr returns where the server listens, as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns the connection string, with which every connection is that of a superuser.
func (s *Server) DSN() string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}

// Restart starts the server again, on the same port and data, after [Server.Kill]. It
// returns when connections are accepted.
func (s *Server) Restart(ctx context.Context) error {
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), s.args...) //nolint:gosec,noctx // as above; it outlives ctx
	s.cmd.Dir = s.dir
	if err := asUser(s.cmd); err != nil {
		return err
	}
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	s.log = newTail(out)
	s.done = make(chan struct{})
	go func() {
		<-s.log.ended // as [exec.Cmd.Wait] wants it
		_ = s.cmd.Wait()
		close(s.done)
	}()
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-s.log.ready:
		return nil
	case <-s.done:
		return fmt.Errorf("pgserver: postgres has ended: %s", s.log)
	case <-wait.Done():
		s.Kill()
		return fmt.Errorf("pgserver: postgres does not accept connections: %w: %s", context.Cause(wait), s.log)
	}
}

// Kill ends the server and its connections at once, as a crash would, and returns when it is
// gone. The data stays for [Server.Restart].
func (s *Server) Kill() {
	select {
	case <-s.done:
	default:
		_ = s.cmd.Process.Signal(quit) // "immediate shutdown": its children end with it
		select {
		case <-s.done:
		case <-time.After(20 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	}
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

// binaries returns the directory with initdb and postgres: that of the latest version.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps them out of PATH
	if len(found) == 0 {
		return "", ErrMissing
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// tail reads what the server logs: to know when it is ready, and to show the end of it.
type tail struct {
	ready, ended chan struct{}

	mu    sync.Mutex
	lines []string
}

func newTail(r io.Reader) *tail {
	t := &tail{ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		isReady := sync.OnceFunc(func() { close(t.ready) })
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			t.mu.Lock()
			t.lines = append(t.lines[max(len(t.lines)-50, 0):], s.Text())
			t.mu.Unlock()
			if strings.Contains(s.Text(), "database system is ready to accept connections") {
				isReady()
			}
		}
	}()
	return t
}

// String returns the last lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
