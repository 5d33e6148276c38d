package dashboard

import (
	"net/http"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Dashboard is an [http.Handler] that shows a registry: the page, its parts, a JSON API
// and a stream. It works under any prefix. Use [Handler] or [New]. All methods are safe
// for concurrent use.
type Dashboard struct {
	registry *policy.Registry
	cfg      Config
	invalid  error
	journal  *journal
	sampler  *sampler
	hand     *hand
	origins  *http.CrossOriginProtection
	streams  streams

	config configWatch // used by run only

	unwatch func()
	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

// Handler returns a dashboard for mounting in one line:
//
//	mux.Handle("/breakwater/", dashboard.Handler(registry, dashboard.Config{}))
//
// It samples from now on, so that there is a history when somebody comes. To end that,
// use [Dashboard.Close]. A Config that is invalid is shown in place of the page; [New]
// returns the error instead.
func Handler(registry *policy.Registry, cfg Config) *Dashboard {
	d, err := New(registry, cfg)
	if err != nil {
		return &Dashboard{registry: registry, invalid: err}
	}
	return d
}

// New returns a dashboard that samples from now on, until [Dashboard.Close]. It returns
// all faults of the Config, as joined [*policy.ConfigError]. Later changes of cfg have no
// effect.
func New(registry *policy.Registry, cfg Config) (*Dashboard, error) {
	d, err := newDashboard(registry, cfg)
	if err != nil {
		return nil, err
	}
	d.stopped.Go(d.run)
	return d, nil
}

// newDashboard is New without the goroutine.
func newDashboard(registry *policy.Registry, cfg Config) (*Dashboard, error) {
	err := cfg.Validate()
	if registry == nil {
		err = &policy.ConfigError{Policy: configKind, Field: "registry", Want: "want a registry: there is nothing to show"}
	}
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	j := &journal{
		registry: registry, traceID: cfg.TraceID,
		refusals: map[string]*ring[Incident]{}, failures: map[string]*ring[Incident]{},
		states: map[stateKey]policy.StateChange{}, began: map[stateKey]Change{},
	}
	d := &Dashboard{
		registry: registry, cfg: cfg, journal: j, sampler: newSampler(registry, j, cfg),
		hand:    &hand{registry: registry, journal: j, cfg: cfg},
		origins: http.NewCrossOriginProtection(),
		stop:    make(chan struct{}),
	}
	d.sampler.byHand = d.hand.byHand
	d.config = configWatch{dashboard: d, last: registry.Config()}
	d.unwatch = registry.Watch(j)
	d.sampler.sample(time.Now())
	return d, nil
}

// run samples until Close.
func (d *Dashboard) run() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.stop:
			return
		case now := <-tick.C:
			d.hand.expire(now)
			d.config.look()
			d.sampler.sample(now)
		}
	}
}

// Close stops sampling, ends every stream and takes back the values that were set by
// hand, which nobody would otherwise end; breakers end their commands themselves. Requests
// are refused from then on. It may be called again.
func (d *Dashboard) Close() {
	if d.invalid != nil {
		return
	}
	d.once.Do(func() {
		close(d.stop)
		d.unwatch()
	})
	d.stopped.Wait()
	d.hand.close(time.Now())
}

func (d *Dashboard) closed() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}
