//go:build !race

package grafana_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

var errSick = errors.New("sick")

// A plant is two instances of a service, with a dependency for each kind of policy. All
// are well until sick is set; what then goes wrong is different for each.
type plant struct {
	tb     testing.TB
	sick   atomic.Bool
	urls   [2]string // of the metrics of the instances
	regs   [2]policy.Registry
	ctx    context.Context //nolint:containedctx // ends the load
	load   sync.WaitGroup
	begin  time.Time
	forced *breaker.Breaker
	told   *breaker.Breaker
}

func newPlant(tb testing.TB) *plant {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ends before the cleanup does
	p := &plant{tb: tb, ctx: ctx, begin: time.Now()}
	for i := range p.regs {
		c, err := otelx.NewCollector(&p.regs[i], otelx.CollectorConfig{MaxDerived: 1})
		require.NoError(tb, err)
		preg := prometheus.NewPedanticRegistry()
		require.NoError(tb, preg.Register(c))
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		require.NoError(tb, err)
		srv := &http.Server{Handler: promhttp.HandlerFor(preg, promhttp.HandlerOpts{}), ReadHeaderTimeout: 5 * time.Second}
		done := make(chan struct{})
		go func() { defer close(done); _ = srv.Serve(l) }()
		p.urls[i] = l.Addr().String()
		tb.Cleanup(func() { _ = srv.Close(); <-done })
	}
	tb.Cleanup(func() {
		cancel()
		p.load.Wait()
		for i := range p.regs {
			_ = p.regs[i].Close(context.Background()) //nolint:usetesting // the test is over
		}
	})
	p.build()
	return p
}

// add builds a pipeline in one instance.
func (p *plant) add(instance int, name string, policies ...policy.Policy) *policy.Pipeline {
	p.tb.Helper()
	pipe, err := p.regs[instance].New(name, policies...)
	require.NoError(p.tb, err, name)
	return pipe
}

// drive has n callers call fn, with a pause after each call, until the plant is closed.
func (p *plant) drive(n int, pause time.Duration, call func(ctx context.Context, i int)) {
	for range n {
		p.load.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-p.ctx.Done():
					return
				case <-tick.C:
					func() {
						defer func() { _ = recover() }() // some functions panic
						call(p.ctx, i)
					}()
				}
			}
		})
	}
}

// answer takes a while, and fails if err says so.
func answer(ctx context.Context, d time.Duration, err error) (int, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-t.C:
		return 1, err
	}
}

// whenSick is an error while the plant is sick.
func (p *plant) whenSick() error {
	if p.sick.Load() {
		return errSick
	}
	return nil
}

// failing calls a pipeline whose function fails while the plant is sick.
func (p *plant) failing(pipe *policy.Pipeline, n int, pause time.Duration) {
	p.drive(n, pause, func(ctx context.Context, _ int) {
		_, _ = policy.Do(ctx, pipe, func(ctx context.Context) (int, error) { return answer(ctx, time.Millisecond, p.whenSick()) })
	})
}

func (p *plant) build() {
	p.wellAndBroken()
	p.retries()
	p.bulkheads()
	p.limits()
	p.keys()
	p.commands()
	p.faults()
	p.said()
}

// trips is a breaker that opens soon and does not stay so for long.
func trips(openFor time.Duration) breaker.Config {
	return breaker.Config{MinCalls: 5, Window: time.Second, OpenFor: openFor, MaxOpenFor: openFor, Probes: 1, SlowAfter: time.Second, ConsecutiveFailures: 50}
}

func (p *plant) wellAndBroken() {
	for i := range p.regs {
		well := p.add(i, "well", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10_000)}, bulkhead.Semaphore{Limit: 20, MaxWait: time.Second},
			breaker.Config{}, retry.Config{}, fallback.Value(0), policy.Timeouts{Total: 5 * time.Second})
		p.drive(2, 20*time.Millisecond, func(ctx context.Context, _ int) {
			_, _ = policy.Do(ctx, well, func(ctx context.Context) (int, error) { return answer(ctx, time.Millisecond, nil) })
		})
	}
	p.failing(p.add(0, "broken", trips(300*time.Millisecond), fallback.Value(0)), 2, 10*time.Millisecond)
	p.failing(p.add(0, "partly", trips(300*time.Millisecond)), 2, 10*time.Millisecond)
	elsewhere := p.add(1, "partly", trips(300*time.Millisecond))
	p.drive(2, 10*time.Millisecond, func(ctx context.Context, _ int) {
		_, _ = policy.Do(ctx, elsewhere, func(ctx context.Context) (int, error) { return answer(ctx, time.Millisecond, nil) })
	})
	flapping := p.add(0, "flapping", breaker.Config{MinCalls: 3, Window: 200 * time.Millisecond, OpenFor: 100 * time.Millisecond, Probes: 1, RampFor: 200 * time.Millisecond})
	p.drive(1, 10*time.Millisecond, func(ctx context.Context, i int) {
		var err error
		if p.sick.Load() && i%100 < 10 {
			err = errSick
		}
		_, _ = policy.Do(ctx, flapping, func(ctx context.Context) (int, error) { return answer(ctx, time.Millisecond, err) })
	})
	p.failing(p.add(0, "throttle", breaker.Throttle{MinCalls: 5, Window: time.Second}), 2, 10*time.Millisecond)
}

func (p *plant) retries() {
	p.failing(p.add(0, "retry", retry.Config{BaseDelay: time.Millisecond, Budget: retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off, Window: time.Second}}), 2, 10*time.Millisecond)
}

func (p *plant) bulkheads() {
	// Their functions take time while the plant is sick.
	slow := func(ctx context.Context) (int, error) {
		if !p.sick.Load() {
			return 1, nil
		}
		return answer(ctx, 25*time.Millisecond, nil)
	}
	semaphore := p.add(0, "semaphore", bulkhead.Semaphore{Limit: 2, MaxWait: 100 * time.Millisecond, MaxWaiters: 3})
	adaptive := p.add(0, "adaptive", bulkhead.Adaptive{Min: 1, Max: 4, Initial: 2, MaxWait: 20 * time.Millisecond, MaxWaiters: 10})
	caller := p.add(0, "caller", bulkhead.Pool{Workers: 1, Queue: 1, WhenFull: bulkhead.CallerRuns})
	for _, pipe := range []*policy.Pipeline{semaphore, adaptive, caller} {
		p.drive(6, 10*time.Millisecond, func(ctx context.Context, _ int) { _, _ = policy.Do(ctx, pipe, slow) })
	}
	// Callers leave before the function ends, in which it panics; some leave the queue.
	pool := p.add(0, "pool", bulkhead.Pool{Workers: 2, Queue: 8, MaxWait: 200 * time.Millisecond, CoDel: bulkhead.CoDel{Target: 5 * time.Millisecond, Interval: 50 * time.Millisecond}},
		policy.Timeouts{Attempt: 30 * time.Millisecond})
	p.drive(8, 30*time.Millisecond, func(ctx context.Context, i int) {
		if p.sick.Load() && i%2 == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
		}
		_, _ = policy.Do(ctx, pool, func(context.Context) (int, error) {
			if !p.sick.Load() {
				return 1, nil
			}
			time.Sleep(60 * time.Millisecond) // deaf to its context
			panic(errSick)
		})
	})
}

func (p *plant) limits() {
	waits := p.add(0, "pacer", ratelimit.Pacer{Rate: ratelimit.PerSecond(200), MaxWait: 100 * time.Millisecond})
	p.drive(2, 20*time.Millisecond, func(ctx context.Context, _ int) {
		_, _ = policy.Do(ctx, waits, func(context.Context) (int, error) { return 1, nil })
	})
	feedback := p.add(0, "feedback", ratelimit.Feedback{Ceiling: ratelimit.PerSecond(500), RecoverIn: time.Second})
	p.drive(2, 10*time.Millisecond, func(ctx context.Context, i int) {
		_, _ = policy.Do(ctx, feedback, func(context.Context) (int, error) {
			if p.sick.Load() && i%20 == 0 {
				return 0, policy.AsThrottled(errSick, 30*time.Millisecond)
			}
			return 1, nil
		})
	})
	lanes := p.add(0, "lanes", ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
		{Name: "paid", Priority: policy.PriorityHigh, Rate: ratelimit.PerSecond(100), LendAbove: 10},
		{Name: "free", Rate: ratelimit.PerSecond(20), MaxWait: 20 * time.Millisecond},
	}})
	p.drive(2, 20*time.Millisecond, func(ctx context.Context, i int) {
		if i%4 == 0 {
			ctx = policy.WithPriority(ctx, policy.PriorityHigh)
		} else if !p.sick.Load() && i%10 != 1 {
			return // the free lane is quiet
		}
		_, _ = policy.Do(ctx, lanes, func(context.Context) (int, error) { return 1, nil })
	})
	shadow := p.add(0, "shadow", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Shadow: true})
	p.drive(1, 20*time.Millisecond, func(ctx context.Context, _ int) {
		_, _ = policy.Do(ctx, shadow, func(context.Context) (int, error) { return 1, nil })
	})
	// The whole process is overloaded, as its readings say.
	readings := 0
	shedding := p.add(0, "system", ratelimit.System{
		CPU: func() (float64, error) {
			if readings++; readings%10 == 0 {
				return 0, errSick // left out, and counted
			}
			if p.sick.Load() {
				return 0.99, nil
			}
			return 0.3, nil
		},
		Delay:  func() (time.Duration, error) { return time.Millisecond, nil },
		Sample: 10 * time.Millisecond, CoolDown: 100 * time.Millisecond, Window: time.Second, MinInFlight: 1,
	})
	for prio := policy.PriorityLow; prio <= policy.PriorityCritical; prio++ {
		p.drive(6, 20*time.Millisecond, func(ctx context.Context, i int) {
			d := time.Millisecond // what a call takes that is not slowed down
			if p.sick.Load() && i%3 > 0 {
				d = 60 * time.Millisecond
			}
			_, _ = policy.Do(policy.WithPriority(ctx, prio), shedding, func(ctx context.Context) (int, error) { return answer(ctx, d, nil) })
		})
	}
}

func (p *plant) keys() {
	keyed := p.add(0, "keyed",
		breaker.Keyed{Config: breaker.Config{MinCalls: 2, Window: time.Second, OpenFor: 2 * time.Second}, MaxKeys: 12, MaxOpenShare: 0.5})
	p.drive(2, 10*time.Millisecond, func(ctx context.Context, i int) {
		key, err := i%4, error(nil)
		if p.sick.Load() {
			if key = i % 16; key < 12 {
				err = errSick
			}
		}
		ctx = policy.WithCall(ctx, policy.Call{Key: "shop-" + strconv.Itoa(key)})
		_, _ = policy.Do(ctx, keyed, func(context.Context) (int, error) { return 1, err })
	})
	// More tenants than there is room for, none of them at rest.
	tenants := p.add(0, "tenants", ratelimit.Keyed{Rate: ratelimit.PerSecond(5), Burst: 5, MaxKeys: 8})
	p.drive(1, 20*time.Millisecond, func(ctx context.Context, i int) {
		tenant := i % 16
		if !p.sick.Load() {
			if i%20 > 0 {
				return
			}
			tenant = i / 20 % 4
		}
		ctx = policy.WithCall(ctx, policy.Call{Key: "tenant-" + strconv.Itoa(tenant)})
		_, _ = policy.Do(ctx, tenants, func(context.Context) (int, error) { return 1, nil })
	})
}

// commands are given when the plant falls sick, and not taken back.
func (p *plant) commands() {
	var err error
	p.forced, err = breaker.New("breaker", breaker.Config{})
	require.NoError(p.tb, err)
	p.told, err = breaker.New("breaker", trips(300*time.Millisecond))
	require.NoError(p.tb, err)
	p.failing(p.add(0, "forced", p.forced), 1, 50*time.Millisecond)
	p.failing(p.add(0, "told", p.told), 2, 10*time.Millisecond)
}

// faults are those of the code around: panics, bodies left open, a snapshot that fails.
func (p *plant) faults() {
	bodies := p.add(0, "bodies")
	p.drive(1, 50*time.Millisecond, func(ctx context.Context, i int) {
		h, err := bodies.Enter(ctx)
		if err != nil {
			return
		}
		defer h.Release()
		if p.sick.Load() && i%4 == 0 {
			h.Abandon()
			return
		}
		h.Leave(nil)
	})
	p.drive(1, 50*time.Millisecond, func(ctx context.Context, i int) {
		_, _ = policy.Do(ctx, bodies, func(context.Context) (int, error) {
			if p.sick.Load() && i%4 == 0 {
				panic(errSick)
			}
			return 1, nil
		})
	})
	p.add(0, "blind", blind{&p.sick})
	// More series, and more derived pipelines, than are shown.
	p.add(0, "rich", breaker.Keyed{Config: trips(time.Second)}, bulkhead.Pool{}, ratelimit.System{}, retry.Config{}, fallback.Value(0),
		ratelimit.Keyed{Rate: ratelimit.PerSecond(1), MaxWait: time.Second})
	for _, host := range []string{"host-1", "host-2", "host-3"} {
		p.add(0, host, policy.Derived(), breaker.Config{})
	}
	p.regs[0].ConfigApplied("first")
}

// said are the states of policies that need a store, a queue or a cache. Their snapshots are
// made up; all that is counted rises.
func (p *plant) said() {
	rises := func() uint64 { return uint64(time.Since(p.begin).Milliseconds()) }
	duration := func() policy.Latency {
		return policy.Latency{Counts: []uint64{rises()}, Sum: time.Since(p.begin)}
	}
	p.add(0, "shared", says{"shared", func() policy.PolicySnapshot {
		mode := policy.SharedModeShared
		if p.sick.Load() {
			mode = policy.SharedModeLocal
		}
		return policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{Rate: 10, Burst: 10, Tokens: 5, Shared: &policy.SharedSnapshot{
			Mode: mode, Nodes: 2, RoundTrips: rises(), Errors: rises() / 10, Latency: duration(), LeaseHits: rises(), Leased: 3, StoodIn: rises() / 10,
		}}}
	}})
	p.add(0, "hedged", says{"hedge", func() policy.PolicySnapshot {
		return policy.PolicySnapshot{Hedge: &policy.HedgeSnapshot{
			MaxHedges: 1, Delay: 30 * time.Millisecond, Started: rises(), Won: rises() / 2, Suppressed: rises() / 3, Refused: rises() / 4, HasBudget: true, BudgetRemaining: 7,
		}}
	}})
	p.add(0, "stale", says{"stale", func() policy.PolicySnapshot {
		return policy.PolicySnapshot{Fallback: &policy.FallbackSnapshot{Stale: &policy.StaleSnapshot{
			Hits: rises(), Misses: rises() / 2, Stale: rises() / 3, Negative: rises() / 4, Loads: rises(), Failures: rises() / 5, Entries: 9, Evicted: rises() / 6, OldestAge: time.Minute,
		}}}
	}})
	p.add(0, "queue", says{"defer", func() policy.PolicySnapshot {
		return policy.PolicySnapshot{Fallback: &policy.FallbackSnapshot{Defer: &policy.DeferSnapshot{
			Accepted: rises(), Refused: rises() / 3, Unconfirmed: rises() / 4, InFlight: 2, Connected: true, Reconnects: rises() / 5,
		}}}
	}})
	all := p.add(0, "all", ratelimit.All{Limits: []policy.Policy{
		ratelimit.TokenBucket{Name: "second", Rate: ratelimit.PerSecond(1000)}, ratelimit.TokenBucket{Name: "minute", Rate: ratelimit.PerSecond(100)},
	}})
	p.drive(1, 20*time.Millisecond, func(ctx context.Context, _ int) {
		_, _ = policy.Do(ctx, all, func(context.Context) (int, error) { return 1, nil })
	})
}

// says is a gate that lets everything in and says what it is told to.
type says struct {
	kind string
	snap func() policy.PolicySnapshot
}

func (says) Peek(*policy.Attempt) error                        { return nil }
func (says) Enter(context.Context, *policy.Attempt, int) error { return nil }
func (says) Leave(*policy.Attempt, int, policy.Outcome)        {}
func (s says) Snapshot(time.Time) policy.PolicySnapshot        { return s.snap() }

func (s says) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: s.kind, Gate: s, Place: policy.PlaceRateLimit}, nil
}

// fallSick has everything go wrong, and returns when that was.
func (p *plant) fallSick() time.Time {
	now := time.Now()
	p.sick.Store(true)
	p.forced.ForceOpen("drill", time.Hour)
	p.told.Observe("drill", time.Hour)
	p.regs[0].ConfigRefused("second", errSick)
	return now
}

// blind is a gate whose snapshot panics while the plant is sick.
type blind struct{ sick *atomic.Bool }

func (blind) Peek(*policy.Attempt) error                        { return nil }
func (blind) Enter(context.Context, *policy.Attempt, int) error { return nil }
func (blind) Leave(*policy.Attempt, int, policy.Outcome)        {}

func (b blind) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "blind", Gate: b, Place: policy.PlaceBulkhead}, nil
}

func (b blind) Snapshot(time.Time) policy.PolicySnapshot {
	if b.sick.Load() {
		panic("snapshot")
	}
	return policy.PolicySnapshot{}
}
