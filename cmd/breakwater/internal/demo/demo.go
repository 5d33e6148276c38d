package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

// Config configures a [Demo].
type Config struct {
	// For is how long the load lasts, at least [script.Shortest].
	For time.Duration

	// Seed decides the order of the requests, which is the same in both worlds.
	Seed uint64

	// Spans keeps example traces of the protected world.
	Spans bool

	// MetricsAddr is where /metrics is served. Empty means a free port of the
	// loopback interface.
	MetricsAddr string

	// Rate is the number of requests per second in each world. Zero means 240.
	// Tests lower it where the race detector makes requests expensive.
	Rate int

	// Slots is the number of handler slots of each service. Zero means 200 at a
	// Rate of 240, and in proportion at others.
	Slots int
}

const (
	defaultRate  = 240
	defaultSlots = 200
)

func (c Config) withDefaults() Config {
	if c.Rate <= 0 {
		c.Rate = defaultRate
	}
	if c.Slots <= 0 {
		c.Slots = max(c.Rate*defaultSlots/defaultRate, 1)
	}
	return c
}

// How often goroutines are counted, and how long servers get to stop.
const (
	sampleEvery = 250 * time.Millisecond
	closeWithin = 5 * time.Second
)

// Demo is one run: two worlds that are up, and load that has not begun.
type Demo struct {
	cfg     Config
	clock   *clock
	script  script.Script
	worlds  [Worlds]*world
	naive   *naive
	guarded *guarded
	spans   *spanKeeper // nil when no spans are kept
	dash    *dashboard.Dashboard
	metrics *server

	lag  lag
	cut  atomic.Bool // results are not counted any more
	ends time.Duration
}

// New starts the servers of both worlds and that of the metrics. Close must be
// called, also when Run is not.
func New(ctx context.Context, cfg Config) (d *Demo, err error) {
	cfg = cfg.withDefaults()
	s, err := script.Incident(cfg.For, stockService)
	if err != nil {
		return nil, err
	}
	d = &Demo{cfg: cfg, clock: &clock{}, script: s, naive: newNaive()}
	defer func() {
		if err != nil {
			d, err = nil, errors.Join(err, d.Close(ctx))
		}
	}()
	var common []policy.Policy
	var wrap func(http.Handler) http.Handler
	if cfg.Spans {
		d.spans = newSpanKeeper(d.phaseNow)
		tracer, err := d.spans.policy()
		if err != nil {
			return d, err
		}
		common, wrap = append(common, tracer), d.spans.wrap
	}
	if d.guarded, err = newGuarded(float64(cfg.Rate)/routes, d.clock, common...); err != nil {
		return d, err
	}
	if d.dash, err = newDashboard(d.guarded.registry); err != nil {
		return d, err
	}
	if d.metrics, err = serveMetrics(ctx, cfg.MetricsAddr, d.guarded.registry, d.dash); err != nil {
		return d, err
	}
	if d.worlds[Unprotected], err = newWorld(ctx, WorldNames[Unprotected], cfg, d.clock, s, d.naive, nil); err != nil {
		return d, err
	}
	d.worlds[Protected], err = newWorld(ctx, WorldNames[Protected], cfg, d.clock, s, d.guarded, wrap)
	return d, err
}

// MetricsURL returns where the metrics of the protected world's pipelines are.
func (d *Demo) MetricsURL() string { return d.metrics.url + metricsPath }

// DashboardURL returns where the dashboard of the protected world's pipelines is.
func (d *Demo) DashboardURL() string { return d.metrics.url + dashboardPath }

// Script returns what the stock dependency does.
func (d *Demo) Script() script.Script { return d.script }

func (d *Demo) phaseNow() string { return d.script[d.script.At(d.clock.now())].Name }

// Run sends the load to both worlds, calls watch once a second with what is going
// on, and returns what became of it all. It returns when the load is over and every
// user has an answer or has left, at most 5 s later. When ctx ends before that, it
// returns at once with what it has, and Report.Interrupted says so.
func (d *Demo) Run(ctx context.Context, watch func(Frame)) (Report, error) {
	for _, w := range d.worlds {
		if err := w.warm(ctx); ctx.Err() != nil {
			return d.report(true), nil
		} else if err != nil {
			return Report{}, fmt.Errorf("demo: warming up the %s world: %w", w.name, err)
		}
	}
	d.clock.start(time.Now())
	over := make(chan struct{})
	var loads sync.WaitGroup
	for _, w := range d.worlds {
		loads.Go(func() {
			w.load.run(w.service.url, d.cfg.For, func(at time.Time, r result) {
				if !d.cut.Load() {
					r.at = d.clock.at(at)
					w.stats.add(r)
				}
			})
		})
	}
	go func() {
		loads.Wait()
		close(over)
	}()

	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { d.lag.watch(done) })
	defer watcher.Wait()
	defer close(done)

	frames, samples := time.NewTicker(time.Second), time.NewTicker(sampleEvery)
	defer frames.Stop()
	defer samples.Stop()
	for {
		select {
		case <-over:
			d.ends = d.cfg.For
			return d.report(false), nil
		case <-samples.C:
			if err := d.sample(); err != nil {
				return Report{}, err
			}
		case <-frames.C:
			watch(d.frame())
		case <-ctx.Done():
			d.cut.Store(true)
			d.ends = min(d.clock.now(), d.cfg.For)
			rep := d.report(true)
			for _, w := range d.worlds {
				w.load.stop()
			}
			// Whoever is still waiting is hung up on.
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
			defer cancel()
			err := d.closeWorlds(closing)
			<-over
			return rep, err
		}
	}
}

// sample counts the goroutines of both worlds.
func (d *Demo) sample() error {
	counts, err := countGoroutines()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for _, w := range d.worlds {
		w.sampled(counts[w.name])
	}
	return nil
}

// Frame is what happened in about the last second.
type Frame struct {
	At      time.Duration // in the time of the script
	For     time.Duration // how long the load lasts
	Phase   string
	Breaker policy.BreakerSnapshot // of the stock dependency, in the protected world
	Worlds  [Worlds]FrameWorld
}

// FrameWorld is the part of a [Frame] that is about one world.
type FrameWorld struct {
	Real, Fallbacks, Failed int64   // answers
	P99, NeighbourP99       float64 // of all answers and of those of /price, in milliseconds
	DependencyCalls         int64   // that reached the stock dependency
	Waiting                 int64   // requests without a slot, now
	Goroutines              int     // now
}

func (d *Demo) frame() Frame {
	now := d.clock.now()
	f := Frame{At: now, For: d.cfg.For, Phase: d.script[d.script.At(now)].Name, Breaker: d.guarded.breaker()}
	for i, w := range d.worlds {
		ended := w.stats.tick()
		all := merge(ended[:]...)
		calls := w.deps[routeStock].total(everyPhase()...)
		w.mu.Lock()
		f.Worlds[i] = FrameWorld{
			Real: all.real, Fallbacks: all.fallbacks, Failed: all.failed,
			P99: all.quantile(99), NeighbourP99: ended[routePrice].quantile(99),
			DependencyCalls: calls - w.lastCalls, Waiting: w.service.waiting.Load(), Goroutines: w.goroutines,
		}
		w.lastCalls = calls
		w.mu.Unlock()
	}
	return f
}

// Close stops everything, at most within 5 s, and may be called again.
func (d *Demo) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	err := d.closeWorlds(ctx)
	if d.dash != nil {
		d.dash.Close()
	}
	if d.metrics != nil {
		err = errors.Join(err, d.metrics.close(ctx))
	}
	if d.guarded != nil {
		err = errors.Join(err, d.guarded.close(ctx))
	}
	d.naive.client.CloseIdleConnections()
	return err
}

func (d *Demo) closeWorlds(ctx context.Context) error {
	var errs [Worlds]error
	var wg sync.WaitGroup
	for i, w := range d.worlds {
		if w != nil {
			wg.Go(func() { errs[i] = w.close(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// Traces returns examples of what happened in the protected world, at most one of
// each kind in each phase, in the order in which they ended. It is empty without
// Config.Spans.
func (d *Demo) Traces() []Trace {
	if d.spans == nil {
		return nil
	}
	return d.spans.all()
}
