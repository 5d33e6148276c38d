package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// phaseHeader carries the phase in which the user's request arrived at the service,
// by its index. A dependency counts its calls by it, so that a call is counted for
// the request that caused it, however long that request had waited.
const phaseHeader = "Demo-Phase"

// dependency is a server that behaves as its script says.
type dependency struct {
	*server
	clock  *clock
	script script.Script
	body   string

	// workers bounds the calls that are worked on at once; the others wait in the
	// order in which they came, and beyond maxQueue they are answered with 503. Nil
	// is no bound.
	workers  chan struct{}
	maxQueue int64
	queued   atomic.Int64

	calls [script.Phases]atomic.Int64 // that reached it, by the phase of their request
}

// maxQueue is enough for every call that 200 slots with three tries leave behind.
const maxQueue = 4000

func newDependency(ctx context.Context, c *clock, s script.Script, workers int, body string) (*dependency, error) {
	srv, err := listen(ctx, "")
	if err != nil {
		return nil, err
	}
	d := &dependency{server: srv, clock: c, script: s, body: body, maxQueue: maxQueue}
	if workers > 0 {
		d.workers = make(chan struct{}, workers)
	}
	srv.serve(d)
	return d, nil
}

// ServeHTTP answers one call. It does not watch the request's context: a call whose
// client has hung up costs as much as any other.
func (d *dependency) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i, err := strconv.Atoi(r.Header.Get(phaseHeader)); err == nil && i >= 0 && i < len(d.calls) {
		d.calls[i].Add(1)
	}
	if d.workers != nil {
		if d.queued.Add(1) > d.maxQueue {
			d.queued.Add(-1)
			http.Error(w, "the queue is full", http.StatusServiceUnavailable)
			return
		}
		select {
		case d.workers <- struct{}{}: // in the order of arrival
			d.queued.Add(-1)
		case <-d.done:
			d.queued.Add(-1)
			return
		}
		defer func() { <-d.workers }()
	}
	begin := d.clock.now()
	end, phase := d.script.Finish(begin)
	work := time.NewTimer(end - begin)
	defer work.Stop()
	select {
	case <-work.C:
	case <-d.done:
		return
	}
	if d.script[phase].Fails {
		http.Error(w, "the database does not answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, d.body) // the client may have hung up
}

// total returns the calls caused by requests of the given phases.
func (d *dependency) total(phases ...int) (n int64) {
	for _, p := range phases {
		n += d.calls[p].Load()
	}
	return n
}

// newCall returns a request to a dependency for a user whose own request arrived in
// the given phase.
func newCall(ctx context.Context, url string, phase int) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	req.Header.Set(phaseHeader, strconv.Itoa(phase))
	return req, nil
}
