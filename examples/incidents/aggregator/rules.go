package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// only is one policy of the requests' pipeline by itself, as breakwater.yaml has it.
func only[T policy.Policy](w *replay.World, more ...string) *policy.Pipeline {
	for _, d := range w.Load(afterYAML, replay.Setup{Settings: more}).Dependencies {
		for _, spec := range d.Specs() {
			if one, ok := spec.(T); ok && d.Name == "aggregate" {
				return w.Pipeline(d.Name, one)
			}
		}
	}
	w.Must(errors.New("breakwater.yaml has no such policy"))
	return nil
}

func nothing(context.Context) error { return nil }

// refuse: 1,100 requests a second for 10 s at 1,000 a second, and no queue.
func refuse(w *replay.World, r *replay.Result) {
	const offered = 11_000
	run := func(burst int) (log *replay.Log) {
		p := only[ratelimit.TokenBucket](w, fmt.Sprintf("aggregate.ratelimit.Burst=%d", burst))
		log = replay.NewLog()
		start := time.Now()
		for i := range offered {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / 1100)))
			record(log, time.Now(), policy.Run(context.Background(), p, nothing))
		}
		return log
	}
	var longest time.Duration
	for _, burst := range []int{2, 50, 100} {
		log := run(burst)
		longest = max(longest, log.Quantile(1))
		r.Row(fmt.Sprintf("1,100/s for 10 s at 1,000/s, burst %d: pass", burst), replay.None, replay.Near(log.Total(replay.Served), 10_000, 100))
	}
	r.Row("  longest that a refusal takes", replay.None, replay.Is(longest, 0))
	r.Row("  with a burst of 1: pass a second", replay.Near(run(1).Total(replay.Served)/10, 550, 1), replay.None)
}

// pace: the same for 30 s, and who finds no token stands in a queue for up to 2 s.
func pace(w *replay.World, r *replay.Result) {
	pacer, err := ratelimit.NewPace("", ratelimit.Pacer{Rate: ratelimit.PerSecond(1000), MaxWait: 2 * time.Second, MaxWaiters: 2500})
	w.Must(err)
	p := w.Pipeline("paced", pacer)
	log, waiting := replay.NewLog(), 0
	var mu sync.Mutex
	type release struct{ offered, at time.Duration }
	var released []release
	var refusals time.Duration
	start := time.Now()
	var wg sync.WaitGroup
	for i := range 33_000 {
		at := time.Duration(i) * time.Second / 1100
		time.Sleep(time.Until(start.Add(at)))
		wg.Go(func() {
			err := policy.Run(context.Background(), p, nothing)
			record(log, start.Add(at), err)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				released = append(released, release{at, time.Since(start)})
			} else {
				refusals = max(refusals, time.Since(start)-at)
			}
		})
		if i%10 == 0 {
			waiting = max(waiting, pacer.Snapshot(time.Now()).Limiter.Waiting)
		}
	}
	wg.Wait()
	slices.SortFunc(released, func(a, b release) int { return int(a.at - b.at) })
	var off time.Duration // of a delay that grows by a tenth of the time until it is 2 s
	for _, rel := range released {
		off = max(off, (rel.at - rel.offered - min(rel.offered/10, 2*time.Second)).Abs())
	}
	first, _ := log.First(replay.Refused)
	r.Row("1,100/s for 30 s, queue of up to 2 s: first refusal at", replay.None, replay.Near(first, 20*time.Second, 20*time.Millisecond))
	r.Row("  pass", replay.None, replay.Near(log.Total(replay.Served), 32_000, 2))
	r.Row("  refused", replay.None, replay.Near(log.Total(replay.Refused), 1000, 2))
	r.Row("  longest that a refusal takes", replay.None, replay.Is(refusals, 0))
	r.Row("  last release at", replay.None, replay.Near(log.Last(replay.Served), 32*time.Second, 2*time.Millisecond))
	r.Row("  most that wait", replay.None, replay.Near(waiting, 2000, 2))
	r.Row("  most in any second", replay.None, replay.AtMost(log.Most(replay.Served), 1000))
	r.Row("  delay: farthest from a smooth growth", replay.None, replay.AtMost(off, 3*time.Millisecond))
}

// concurrency: 100 callers in a loop, and 50 may be in flight.
func concurrency(w *replay.World, r *replay.Result) {
	p := only[bulkhead.Semaphore](w, "aggregate.bulkhead.Limit=50")
	busy, log := replay.NewGauge(), replay.NewLog()
	callers := make([]func(), 100)
	for i := range callers {
		callers[i] = func() {
			time.Sleep(time.Duration(i) * time.Microsecond)
			for log.Since() < 2*time.Second {
				arrived := time.Now()
				err := policy.Run(context.Background(), p, func(context.Context) error {
					busy.Add(1)
					defer busy.Add(-1)
					time.Sleep(20*time.Millisecond + time.Duration(i))
					return nil
				})
				record(log, arrived, err)
				if err != nil {
					time.Sleep(3*time.Millisecond + time.Duration(i))
				}
			}
		}
	}
	replay.Together(callers...)
	r.Row("100 callers in a loop, 50 at a time: most in flight", replay.None, replay.Is(busy.Peak(), 50))
	r.Row("  longest that a refusal takes", replay.None, replay.Is(log.Quantile(1, replay.Refused), 0))
}

// shops: one that is hot, and 10,000 that are cold.
func shops(w *replay.World, r *replay.Result) {
	p := only[ratelimit.Keyed](w, "aggregate.shop.MaxKeys=1000")
	hot, cold := replay.NewLog(), replay.NewLog()
	ask := func(log *replay.Log, shop string) {
		arrived := time.Now()
		record(log, arrived, policy.Run(policy.WithCall(context.Background(), policy.Call{Key: shop}), p, nothing))
	}
	most := 0
	replay.Together(
		func() {
			replay.Traffic{Every: replay.PerSecond(300), From: 50 * time.Microsecond, Length: 10 * time.Second}.Offer(func(int) { ask(hot, "hot") })
		},
		func() {
			replay.Traffic{Every: replay.PerSecond(1000), From: 150 * time.Microsecond, Length: 10 * time.Second}.Offer(func(i int) {
				ask(cold, fmt.Sprint("shop ", i))
				if i%500 == 0 {
					most = max(most, replay.Find(p, "shop").Limiter.Keyed.Keys)
				}
			})
		},
	)
	least, top := replay.Extremes(hot.PerSecond(10, replay.Served)[1:])
	r.Row("100/s for each shop, one comes with 300/s: least a second", replay.None, replay.AtLeast(least, 99))
	r.Row("  most a second, after the first", replay.None, replay.AtMost(top, 101))
	r.Row("  10,000 cold shops: refused", replay.None, replay.Is(cold.Total(replay.Refused), 0))
	r.Row("  shops in memory, of 1,000 that may be", replay.None, replay.AtMost(most, 1000))
}

// breakers: latency climbs from 50 ms to 5 s within a minute, and calls fail once they take
// longer than 2 s.
func breakers(w *replay.World, r *replay.Result) {
	ramp := func(settings ...string) *replay.Opening {
		start := time.Now()
		p := w.Pipelines(afterYAML, replay.Setup{Settings: append(settings, "aggregate.timeout.Attempt=2s", "aggregate.bulkhead.Limit=1000")})["aggregate"]
		opening := replay.WatchOpening(p)
		replay.Traffic{Every: replay.PerSecond(50), From: time.Millisecond, Length: 40 * time.Second}.Offer(func(int) {
			latency := 50*time.Millisecond + time.Since(start)*(5000-50)/60_000
			_ = policy.Run(context.Background(), p, func(ctx context.Context) error { return replay.Sleep(ctx, latency) })
		})
		return opening
	}
	slowAt, slowWhy, slowFailed := ramp("aggregate.breaker.FailureRatio=off").First()
	errorsAt, errorsWhy, errorsFailed := ramp("aggregate.breaker.SlowAfter=0s", "aggregate.breaker.SlowRatio=0").First()
	r.Row("latency ramps up, errors from 2 s on: opens at", replay.Near(errorsAt, 25600*time.Millisecond, time.Second), replay.Near(slowAt, 6*time.Second, time.Second))
	r.Row("  because of", replay.Says(errorsWhy, breaker.WhyFailureRatio), replay.Says(slowWhy, breaker.WhySlowRatio))
	r.Row("  calls that had failed by then", replay.AtLeast(errorsFailed, 1), replay.Is(slowFailed, 0))
	r.Row("  earlier than by errors", replay.None, replay.AtLeast(errorsAt-slowAt, time.Second))
}

// clients come until there are 1,000, each with one request at a time. The database bears
// 400 of theirs a second.
func clients(w *replay.World, r *replay.Result) {
	run := func(call func(ctx context.Context) error) *replay.Log {
		log := replay.NewLog()
		all := make([]func(), 1000)
		for i := range all {
			all[i] = func() {
				if i >= 50 {
					time.Sleep(time.Duration(i-50) * time.Minute / 950)
				}
				time.Sleep(time.Duration(i) * time.Microsecond)
				for log.Since() < time.Minute {
					arrived := time.Now()
					ctx, cancel := context.WithTimeout(policy.WithCall(context.Background(), policy.Call{Key: fmt.Sprint("shop ", i)}), 2*time.Second)
					err := call(ctx)
					cancel()
					record(log, arrived, err)
					if errors.Is(err, policy.ErrRejected) {
						time.Sleep(500*time.Millisecond + time.Duration(i)*time.Microsecond)
					}
				}
			}
		}
		replay.Together(all...)
		return log
	}
	worst := func(l *replay.Log) float64 {
		least := 1.0
		for from := time.Duration(0); from < time.Minute; from += 10 * time.Second {
			least = min(least, float64(l.From(from, from+10*time.Second).Total(replay.Served))/4000)
		}
		return 100 * least
	}
	p := w.Pipelines(afterYAML, replay.Setup{Settings: []string{"aggregate.bulkhead.Limit=28"}})["aggregate"]
	oldServer, newServer := newQueue(20, 50*time.Millisecond), newQueue(20, 50*time.Millisecond)
	var old, now *replay.Log
	replay.Together(
		func() { old = run(oldServer.serve) },
		func() {
			now = run(func(ctx context.Context) error { return policy.Run(ctx, p, newServer.serve) })
		},
	)
	r.Row("50 to 1,000 clients in 1 min: goodput, worst 10 s, % of capacity", replay.AtMost(worst(old), 50), replay.AtLeast(worst(now), 90))
}

// queue is a server that works off what has come, also for those who have left.
type queue struct {
	mu   sync.Mutex
	free []time.Time // when each of its workers is
	time time.Duration
}

func newQueue(workers int, service time.Duration) *queue {
	return &queue{free: make([]time.Time, workers), time: service}
}

func (q *queue) serve(ctx context.Context) error {
	q.mu.Lock()
	next := 0
	for i, at := range q.free {
		if at.Before(q.free[next]) {
			next = i
		}
	}
	begin := time.Now()
	if q.free[next].After(begin) {
		begin = q.free[next]
	}
	end := begin.Add(q.time)
	q.free[next] = end
	q.mu.Unlock()
	return replay.Sleep(ctx, time.Until(end))
}

// tokenServer: a limit that two nodes share is kept by a server, which becomes slow.
func tokenServer(w *replay.World, r *replay.Result) {
	file := []byte(strings.Join([]string{
		"dependencies:", "  shared:", "    policies:", "      - redis:",
		"          Limits: [{Rate: 1000/s, Burst: 50}]",
		"          Settings: {Timeout: 50ms, Nodes: 2}",
	}, "\n"))
	store := replay.NewStore(270 * time.Microsecond)
	log := replay.NewLog()
	node := func(from time.Duration) func() {
		p := w.Pipelines(file, replay.Setup{Store: store})["shared"]
		return func() {
			replay.Traffic{Every: replay.PerSecond(1000), From: from, Length: 3 * time.Second}.Offer(func(int) {
				arrived := time.Now()
				record(log, arrived, policy.Run(context.Background(), p, nothing))
			})
		}
	}
	replay.Together(node(11*time.Microsecond), node(503*time.Microsecond), func() {
		time.Sleep(time.Second)
		store.Set(replay.Slow)
	})
	passed := log.PerSecond(3, replay.Served)
	r.Row("1,000/s over two nodes, 2,000/s come: pass in a second", replay.None, replay.Near(passed[0], 1000, 60))
	r.Row("  while the token server is slow", replay.None, replay.Near(passed[2], 1000, 20))
	r.Row("  longest that a call waits for it", replay.None, replay.AtMost(log.Quantile(1), 50*time.Millisecond))
}
