// Package rabbitserver starts RabbitMQ brokers for tests and demonstrations: each a node of its
// own in a temporary directory, with a port mapper of its own, on free ports of the loopback
// interface, with the binaries of Debian's package rabbitmq-server and without its service. It
// needs no client library.
package rabbitserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrMissing reports that RabbitMQ is not installed, or that this process may not start it.
var ErrMissing = errors.New("rabbitserver: needs Debian's package rabbitmq-server, and to be root")

const (
	binaries = "/usr/lib/rabbitmq/bin"

	// A broker takes some seconds to start, and many of them on a busy machine.
	patience = 2 * time.Minute
)

// Server is a running broker. It is made by [Start]. Its methods are not safe for concurrent
// use.
type Server struct {
	dir, port string
	env       []string
	started   []*exec.Cmd
}

// Start starts a broker and waits until it answers, which takes some seconds. Who starts it
// ends it with [Server.Stop]: it goes on otherwise, also when this process has ended.
func Start(ctx context.Context) (_ *Server, err error) {
	if _, err := os.Stat(filepath.Join(binaries, "rabbitmq-server")); err != nil || os.Getuid() != 0 {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "rabbitserver")
	if err != nil {
		return nil, fmt.Errorf("rabbitserver: %w", err)
	}
	s := &Server{dir: dir}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	s.port = ports[1]
	plugins := filepath.Join(dir, "plugins")
	s.env = append(
		os.Environ(),
		"HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+ports[0],
		"RABBITMQ_NODENAME=test"+ports[1]+"@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+ports[1], "RABBITMQ_DIST_PORT="+ports[2],
		"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins, "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	)
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o600); err != nil {
		return nil, fmt.Errorf("rabbitserver: %w", err)
	}
	for _, args := range [][]string{{"epmd", "-port", ports[0], "-address", "127.0.0.1"}, {filepath.Join(binaries, "rabbitmq-server")}} {
		if err := s.start(args...); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !s.answers(ctx) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("rabbitserver: no answer: %w", ctx.Err())
		}
	}
	return s, nil
}

// URL is the address of the broker, for its default user.
func (s *Server) URL() string { return "amqp://guest:guest@127.0.0.1:" + s.port + "/" }

// Control runs the broker's control program, rabbitmqctl, and returns what it prints.
func (s *Server) Control(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "rabbitmqctl"), args...) //nolint:gosec // a fixed program
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitserver: rabbitmqctl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Stop ends the broker at once, and removes what it has stored. Further calls do nothing.
func (s *Server) Stop() {
	for _, cmd := range s.started {
		killGroup(cmd)
		_ = cmd.Wait()
	}
	s.started = nil
	_ = os.RemoveAll(s.dir)
}

// start starts a program in a process group of its own: the broker's is a shell, which starts
// the node.
func (s *Server) start(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // fixed programs, stopped by their ids
	cmd.Env = s.env
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("rabbitserver: %w", err)
	}
	s.started = append(s.started, cmd)
	return nil
}

// answers reports whether the broker answers the header of the protocol with its first frame,
// a method (type 1).
func (s *Server) answers(ctx context.Context) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", "127.0.0.1:"+s.port)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return false
	}
	var frame [1]byte
	_, err = io.ReadFull(conn, frame[:])
	return err == nil && frame[0] == 1
}

// freePorts returns ports of the loopback interface that nobody listens on, all different.
func freePorts(ctx context.Context, n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("rabbitserver: %w", err)
		}
		defer func() { _ = l.Close() }() // after all are found, so that they differ
		if _, ports[i], err = net.SplitHostPort(l.Addr().String()); err != nil {
			return nil, fmt.Errorf("rabbitserver: %w", err)
		}
	}
	return ports, nil
}
