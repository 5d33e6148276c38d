package live

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

	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

// Stage is where an incident runs: a registry with its dashboard, and servers on loopback.
type Stage struct {
	Registry  policy.Registry
	Dashboard string // its address

	ctx     context.Context //nolint:containedctx // the stage's own, which servers end with
	end     context.CancelFunc
	board   *dashboard.Dashboard
	servers []*http.Server
	serving sync.WaitGroup
}

// NewStage returns a stage with the dashboard, which lets whoever is on this machine act.
func NewStage(ctx context.Context, title string) (_ *Stage, err error) {
	s := new(Stage)
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = s.Close(ctx)
		}
	}()
	s.board, err = dashboard.New(&s.Registry, dashboard.Config{
		Title: title, Actions: true,
		Authorize: func(r *http.Request) (dashboard.Viewer, bool) {
			return dashboard.Viewer{Name: "you", Act: true}, dashboard.Loopback(r)
		},
	})
	if err != nil {
		return nil, err
	}
	s.Dashboard, err = s.Serve(ctx, "", s.board)
	return s, err
}

// Serve serves on an address of the loopback interface, by default with any free port, and
// returns its URL.
func (s *Stage) Serve(ctx context.Context, addr string, h http.Handler) (url string, err error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("live: %w", err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return "", errors.Join(fmt.Errorf("live: %s is not on loopback: want such as 127.0.0.1:8080", addr), l.Close())
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:    log.New(io.Discard, "", 0), // clients that hang up are part of it
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	s.servers = append(s.servers, server)
	s.serving.Go(func() { _ = server.Serve(l) }) // ends with ErrServerClosed
	return "http://" + l.Addr().String(), nil
}

// Close hangs up on everybody and closes the pipelines.
func (s *Stage) Close(ctx context.Context) error {
	s.end()
	if s.board != nil {
		s.board.Close()
	}
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	s.serving.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(append(errs, s.Registry.Close(ctx))...)
}
