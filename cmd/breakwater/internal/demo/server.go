package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// server is an HTTP server on a loopback address.
type server struct {
	url      string
	listener net.Listener
	srv      *http.Server
	accept   sync.WaitGroup // the accept loop
	done     chan struct{}  // closed when the server stops: handlers give up

	mu       sync.Mutex
	stopped  bool
	handlers sync.WaitGroup
}

// listen returns a server that listens on addr, or on a free port of the loopback
// interface if addr is empty. It answers once serve has been called.
func listen(ctx context.Context, addr string) (*server, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s := &server{url: "http://" + l.Addr().String(), listener: l, done: make(chan struct{})}
	s.srv = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that hang up are part of the demo
	}
	return s, nil
}

// serve answers requests with h until close is called. All goroutines that this
// causes, in handlers and in the transports they use, inherit the profiler labels of
// the calling goroutine.
func (s *server) serve(h http.Handler) {
	s.srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.enter() {
			defer s.handlers.Done()
			h.ServeHTTP(w, r)
		}
	})
	s.accept.Go(func() { _ = s.srv.Serve(s.listener) }) // ends with ErrServerClosed
}

// enter counts a handler, unless the server has stopped.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.handlers.Add(1)
	}
	return !s.stopped
}

// close hangs up on everybody and waits until the handlers have noticed, at most
// until ctx ends. It may be called again.
func (s *server) close(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.done)
	}
	s.mu.Unlock()
	err := errors.Join(s.srv.Close(), s.closeListener())
	s.accept.Wait()
	ended := make(chan struct{})
	go func() {
		s.handlers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("demo: handlers of %s are still running: %w", s.url, context.Cause(ctx)))
	}
	return err
}

// closeListener closes the listener of a server that never served.
func (s *server) closeListener() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}
