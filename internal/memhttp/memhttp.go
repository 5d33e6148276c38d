// Package memhttp runs an HTTP server and its clients inside one process, over
// [net.Pipe] in place of sockets. A test that uses it binds no port, and can run in a
// testing/synctest bubble: a goroutine that waits for a pipe is durably blocked, one
// that waits for a socket is not.
//
// A pipe has no buffer, so every write waits for the other side's read. That is
// harsher than a network, and shows code that relies on a kernel's buffer.
package memhttp

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// ErrClosed is the error of a dial to a server that was closed.
var ErrClosed = errors.New("memhttp: server is closed")

// Server serves HTTP/1.1 and unencrypted HTTP/2 to the transports that it makes. All
// methods are safe for concurrent use.
type Server struct {
	http   *http.Server
	served chan struct{}  // closed when the accept loop has ended
	conns  sync.WaitGroup // goroutines that serve a connection

	queue   chan net.Conn // from Dial to the accept loop, unbuffered
	closed  chan struct{}
	closing sync.Once

	dialed, open atomic.Int64

	mu         sync.Mutex
	idle       sync.Cond // handlers == 0
	handlers   int
	far        map[*conn]struct{} // the server's sides, hijacked ones too
	transports []*http.Transport
}

// NewServer starts a server. In a bubble it must be closed before the bubble ends.
func NewServer(h http.Handler) *Server {
	s := &Server{
		served: make(chan struct{}),
		queue:  make(chan net.Conn),
		closed: make(chan struct{}),
		far:    make(map[*conn]struct{}),
	}
	s.idle.L = &s.mu
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{ //nolint:gosec // its only clients are in this process
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.handling(1)
			defer s.handling(-1)
			h.ServeHTTP(w, r)
		}),
		Protocols: protocols,
		// Called with StateNew by the accept loop, and with the others at the end
		// of a connection's goroutine.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state { //nolint:exhaustive // between these two it does not matter
			case http.StateNew:
				s.conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				s.conns.Done()
			}
		},
		// A server complains when a handler panics or a client hangs up; tests do
		// both on purpose.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve((*listener)(s))
	}()
	return s
}

// URL is the address of the server, without a trailing slash.
func (s *Server) URL() string { return "http://" + addr{}.String() }

// Transport returns a new transport whose connections all lead to the server, whatever
// the address. Close ends its idle connections.
func (s *Server) Transport() *http.Transport {
	t := &http.Transport{DialContext: s.Dial}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transports = append(s.transports, t)
	return t
}

// Dial connects to the server; network and address do not matter. It waits until the
// server accepts, and fails with the context's error or with [ErrClosed].
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, b := net.Pipe()
	far := &conn{Conn: b}
	far.onClose = func() { s.forget(far) }
	s.mu.Lock()
	s.far[far] = struct{}{}
	s.mu.Unlock()
	var err error
	select {
	case <-s.closed: // asked alone first: select picks at random
		err = ErrClosed
	default:
		select {
		case s.queue <- far:
			s.dialed.Add(1)
			s.open.Add(1)
			return &conn{Conn: a, onClose: func() { s.open.Add(-1) }}, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.closed:
			err = ErrClosed
		}
	}
	_ = far.Close()
	return nil, err
}

// Dialed returns the number of connections made so far.
func (s *Server) Dialed() int { return int(s.dialed.Load()) }

// Open returns the number of connections that no client has closed.
func (s *Server) Open() int { return int(s.open.Load()) }

// Close ends every connection, and returns when the server's goroutines have ended. A
// handler that waits is told by its request's context; one that ignores it keeps Close
// waiting. Further calls do nothing.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.served
	s.mu.Lock()
	far := make([]*conn, 0, len(s.far))
	for c := range s.far {
		far = append(far, c)
	}
	transports := s.transports
	s.mu.Unlock()
	for _, c := range far {
		_ = c.Close()
	}
	for _, t := range transports {
		t.CloseIdleConnections()
	}
	s.conns.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.handlers > 0 {
		s.idle.Wait()
	}
}

func (s *Server) handling(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers += n; s.handlers == 0 {
		s.idle.Broadcast()
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.far, c)
}

// listener is the server's side of Dial.
type listener Server

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

func (*listener) Addr() net.Addr { return addr{} }

// conn tells once that it was closed.
type conn struct {
	net.Conn

	once    sync.Once
	onClose func()
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.onClose)
	return err
}

// addr is the address of the server.
type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "server.test" }
