package demo

import (
	"context"
	"errors"
	"net/http"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// The worlds.
const (
	Unprotected = iota
	Protected

	// Worlds is their number.
	Worlds
)

// WorldNames are the names of the worlds, by their constants.
var WorldNames = [Worlds]string{"unprotected", "protected"}

// What the dependencies need for one call while they are well. The neighbour is slow
// enough that the scheduling noise of a busy machine is small against it.
const (
	stockService = 30 * time.Millisecond
	priceService = 120 * time.Millisecond
)

// world is one service with its dependencies and its users.
type world struct {
	name    string
	deps    [routes]*dependency
	service *service
	load    *load
	stats   *stats

	mu             sync.Mutex
	goroutines     int // in the last sample
	peakGoroutines int
	lastCalls      int64 // to the stock dependency, at the last frame
}

// newWorld starts the servers of a world. Its service calls through cl; wrap, when
// it is not nil, is put around the service's handler.
func newWorld(ctx context.Context, name string, cfg Config, c *clock, s script.Script, cl caller, wrap func(http.Handler) http.Handler) (w *world, err error) {
	w = &world{name: name, stats: newStats(s, settleTime(s)), load: newLoad(cfg.Rate, cfg.Seed)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	// A capacity of twice the traffic, and less than what 200 slots can ask for when
	// each of their calls times out.
	workers := max(cfg.Slots*8/200, 2)
	if w.deps[routeStock], err = newDependency(ctx, c, s, workers, `{"in_stock":true,"count":7}`); err != nil {
		return w, err
	}
	if w.deps[routePrice], err = newDependency(ctx, c, script.Steady(priceService), 0, `{"cents":1990}`); err != nil {
		return w, err
	}
	var urls [routes]string
	for r, d := range w.deps {
		urls[r] = d.url
	}
	if w.service, err = newService(ctx, c, s, cfg.Slots, urls, cl); err != nil {
		return w, err
	}
	var h http.Handler = w.service
	if wrap != nil {
		h = wrap(h)
	}
	pprof.Do(ctx, pprof.Labels(worldLabel, name), func(context.Context) { w.service.serve(h) })
	return w, nil
}

// settleTime returns when an incident counts as over: 5 s after the dependency has
// begun to recover, or half-way between that and the end of a run that is shorter.
func settleTime(s script.Script) time.Duration {
	recovery := s.Start(script.RecoveringPhase)
	return recovery + min(5*time.Second, (s.End()-recovery)/2)
}

// warm makes a few connections, so that the first requests of the run do not pay for
// them.
func (w *world) warm(ctx context.Context) error {
	const each = 8
	client := http.Client{Transport: w.load.transport}
	errs := make(chan error, each*routes)
	for range each {
		for r := range routes {
			go func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.service.url+routePaths[r], http.NoBody)
				if err != nil {
					errs <- err
					return
				}
				resp, err := client.Do(req)
				if err == nil {
					_, err = read(resp)
				}
				errs <- err
			}()
		}
	}
	var err error
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	return err
}

// sampled takes note of the number of goroutines.
func (w *world) sampled(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goroutines, w.peakGoroutines = n, max(w.peakGoroutines, n)
}

func (w *world) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peakGoroutines
}

// close stops the servers.
func (w *world) close(ctx context.Context) error {
	var servers []*server
	if w.service != nil {
		servers = append(servers, w.service.server)
	}
	for _, d := range w.deps {
		if d != nil {
			servers = append(servers, d.server)
		}
	}
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.close(ctx) })
	}
	wg.Wait()
	w.load.transport.CloseIdleConnections()
	return errors.Join(errs...)
}
