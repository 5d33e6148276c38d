package httpx

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/breakwater-go/breakwater/policy"
)

// Routes is a [Chooser] that goes by method, host and path of a request, in the patterns of
// [http.ServeMux]: "GET /orders/{id}", "api.test/", "POST /payments/". The most specific
// pattern that matches counts. It is safe for concurrent use.
//
// A path matches as it does in a server, except that nothing is redirected: one that the
// server of these patterns would redirect, for a slash at its end or a double one within,
// matches nothing.
type Routes struct {
	mux *http.ServeMux
	reg *policy.Registry
}

// route is what stands behind a pattern.
type route struct {
	name string
	last atomic.Pointer[policy.Pipeline]
}

// ServeHTTP is never called: the mux is asked which handler it would call.
func (*route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// NewRoutes returns a [Routes] that sends what matches a pattern, the key, through the
// pipeline of that name in reg. The same pipeline may be named more than once. The error
// joins everything that is wrong: patterns that cannot be read or are in conflict, and
// names that the registry does not have.
//
// Which pipeline a name stands for is asked at each request, so it may be replaced. One
// that is removed from the registry refuses the requests of its routes.
func NewRoutes(reg *policy.Registry, routes map[string]string) (*Routes, error) {
	if reg == nil {
		return nil, &policy.ConfigError{Policy: "routes", Field: "reg", Value: "nil", Want: "want a registry"}
	}
	r := &Routes{mux: http.NewServeMux(), reg: reg}
	var errs []error
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		to := &route{name: routes[pattern]}
		p, ok := reg.Get(to.name)
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: "routes", Field: pattern, Value: to.name, Want: "want the name of a pipeline of the registry"})
		}
		to.last.Store(p)
		if err := r.handle(pattern, to); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// handle registers a pattern. A mux reports what is wrong with one by a panic.
func (r *Routes) handle(pattern string, to *route) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = &policy.ConfigError{Policy: "routes", Field: pattern, Value: to.name, Want: fmt.Sprint(why)}
		}
	}()
	r.mux.Handle(pattern, to)
	return nil
}

// Choose implements [Chooser]. It returns nil for a request that no pattern matches.
func (r *Routes) Choose(req *http.Request) (p *policy.Pipeline, done func()) {
	if req.URL == nil {
		return nil, nil
	}
	if req.Host == "" || req.Method == "" {
		// As a server would see it.
		c := *req
		if c.Host == "" {
			c.Host = c.URL.Host
		}
		if c.Method == "" {
			c.Method = http.MethodGet
		}
		req = &c
	}
	h, _ := r.mux.Handler(req)
	to, ok := h.(*route)
	if !ok {
		return nil, nil
	}
	if p, ok = r.reg.Get(to.name); !ok {
		return to.last.Load(), nil // closed, and says so
	}
	if to.last.Load() != p {
		to.last.Store(p)
	}
	return p, nil
}
