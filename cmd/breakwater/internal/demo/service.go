package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// The routes of the service, each of which needs one dependency.
const (
	routeStock = iota // the dependency with the incident
	routePrice        // its healthy neighbour

	routes
)

var routePaths = [routes]string{"/stock", "/price"}

// degradedHeader marks an answer that is a fallback.
const degradedHeader = "X-Degraded"

// answer is what the service tells its user.
type answer struct {
	body     []byte
	degraded bool
}

// A caller makes a service's calls to a dependency. This is all in which the two
// worlds differ.
type caller interface {
	// call asks for url on behalf of a user's request, which arrived in phase.
	call(ctx context.Context, route int, url string, phase int) (answer, error)
}

// service answers its users' requests with the help of a dependency each.
type service struct {
	*server
	clock  *clock
	script script.Script
	caller caller
	deps   [routes]string // URLs

	slots   chan struct{}
	waiting atomic.Int64

	offered [routes][script.Phases]atomic.Int64 // requests, by the phase they arrived in
}

// newService returns a service that asks the dependencies at the given URLs, a URL
// for each route, through cl. It answers once serve has been called.
func newService(ctx context.Context, c *clock, s script.Script, slots int, deps [routes]string, cl caller) (*service, error) {
	srv, err := listen(ctx, "")
	if err != nil {
		return nil, err
	}
	return &service{server: srv, clock: c, script: s, caller: cl, deps: deps, slots: make(chan struct{}, slots)}, nil
}

// ServeHTTP answers one request. It waits for a slot in the order of arrival, for as
// long as the user does.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := routeStock
	if r.URL.Path == routePaths[routePrice] {
		route = routePrice
	}
	phase := -1 // not counted
	if s.clock.origin.Load() != nil {
		phase = s.script.At(s.clock.now())
		s.offered[route][phase].Add(1)
	}
	s.waiting.Add(1)
	select {
	case s.slots <- struct{}{}:
		s.waiting.Add(-1)
	case <-r.Context().Done():
		s.waiting.Add(-1)
		return
	case <-s.done:
		s.waiting.Add(-1)
		return
	}
	defer func() { <-s.slots }()

	a, err := s.caller.call(r.Context(), route, s.deps[route], phase)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if a.degraded {
		w.Header().Set(degradedHeader, "1")
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.body) // the user may have left
}

// total returns the requests for a route that arrived in the given phases.
func (s *service) total(route int, phases ...int) (n int64) {
	for _, p := range phases {
		n += s.offered[route][p].Load()
	}
	return n
}

// read takes the answer from a response, and closes it. Anything but 200 is an
// error.
func read(resp *http.Response) (answer, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("the dependency answered %s", resp.Status)
	}
	return answer{body: body, degraded: resp.Header.Get(degradedHeader) != ""}, nil
}
