// Package pgtest gives the tests of a package a PostgreSQL that they share.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/internal/pgserver"
)

var shared struct {
	once   sync.Once
	server *pgserver.Server
	err    error
}

// Server returns the server of all tests, which the first one that asks starts. Without an
// installed PostgreSQL the test is skipped.
func Server(tb testing.TB) *pgserver.Server {
	tb.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = Start(context.Background()) //nolint:usetesting // it outlives the test
	})
	check(tb, shared.err)
	return shared.server
}

// Own returns a server for one test, which may end it.
func Own(tb testing.TB) *pgserver.Server {
	tb.Helper()
	s, err := Start(tb.Context())
	check(tb, err)
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Start starts a server that finds deadlocks soon.
func Start(ctx context.Context) (*pgserver.Server, error) {
	return pgserver.Start(ctx, pgserver.Config{Settings: map[string]string{"deadlock_timeout": "50ms"}})
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, pgserver.ErrMissing) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

type main struct{ m *testing.M }

// Run runs the tests and ends the server.
func (m main) Run() int {
	code := m.m.Run()
	if s := shared.server; s != nil {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// Main runs the tests of a package, ends the server, and sees that no goroutine is left.
func Main(m *testing.M) { goleak.VerifyTestMain(main{m}) }

// Line is how a client reaches a server, until it is cut.
type Line struct {
	mu    sync.Mutex
	conns []net.Conn
	gone  string // the address of nobody
}

// Dial is a client's DialFunc.
func (l *Line) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone != "" {
		addr = l.gone
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// Cut ends what is connected, as seen from both ends, and lets nobody connect again.
func (l *Line) Cut(tb testing.TB) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = listener.Addr().String()
	_ = listener.Close()
	for _, c := range l.conns {
		_ = c.Close()
	}
}
