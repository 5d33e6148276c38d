// Package orders replays the incident of one slow dependency that took the whole service.
//
// An order service got 1,000 requests a second and asked the inventory in each of them.
// The inventory ran out of connections, and its 20 ms became 10 s. The service waited for
// half a second, three times over. Its threads went from 200 to 800, then requests were
// refused, also those that had nothing to do with the inventory, and users tried again. The
// tries of the client made 3,000 requests a second of 1,000 at a dependency that was sick,
// and would have made 6,000 with one more by the gateway for each.
package orders

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// Replay plays the incident, before and after.
func Replay() (*replay.Result, error) {
	r := &replay.Result{Incident: "orders"}
	return r, replay.Run(
		func(w *replay.World) { outage(w, r, 1) },
		func(w *replay.World) { amplification(w, r) },
		func(w *replay.World) { fullPool(w, r) },
		func(w *replay.World) { layers(w, r) },
		func(w *replay.World) { cluster(w, r) },
		func(w *replay.World) { away(w, r) },
		func(w *replay.World) { sizes(w, r) },
	)
}

// Live plays what can be seen on real time, at a tenth of the size: the dependencies answer over
// HTTP, and the limit of the merchants is in a Redis if there is one.
func Live(ctx context.Context, live *replay.Live) (*replay.Result, error) {
	r := &replay.Result{Incident: "orders"}
	err := replay.RunLive(ctx, live, func(w *replay.World) { outage(w, r, 10) })
	r.Loosen()
	return r, err
}

// noJitter takes chance out of the delays, so that two runs are equal.
var noJitter = []string{"inventory.retry.Jitter=none", "orders.retry.Jitter=none", "catalogue.retry.Jitter=none"}

// noBreaker keeps the breaker of the inventory from opening, too.
var noBreaker = slices.Concat(noJitter, []string{"inventory.breaker.MinCalls=1000000"})

// The outage: the inventory is slow for 5 s.
const (
	rate   = 1000 // orders a second
	busy   = 800  // threads, at most
	begin  = 2 * time.Second
	end    = 7 * time.Second
	length = 20
)

func slowFor() func() time.Duration {
	start := time.Now()
	return func() time.Duration {
		if at := time.Since(start); at >= begin && at < end {
			return dead()
		}
		return steady()
	}
}

// outage plays it, with a part of the orders and as small a part of everything else.
func outage(w *replay.World, r *replay.Result, part int) {
	oldShop, newShop := newShop(w, slowFor()), newShop(w, slowFor())
	settings := slices.Clone(noJitter)
	for _, d := range []string{"inventory", "orders", "catalogue"} {
		settings = append(settings, fmt.Sprintf("%s.%s.Workers=%d", d, d, 100/part), fmt.Sprintf("%s.%s.Queue=%d", d, d, 500/part))
	}
	pipelines := w.Pipelines(afterYAML, replay.Setup{Settings: settings, Store: replay.NewStore(270 * time.Microsecond)})
	old, now := newSite(&before{oldShop}, busy/part), newSite(newAfter(newShop, pipelines), busy/part)
	play := func(s *site) {
		replay.Together(
			func() {
				replay.Traffic{Every: replay.PerSecond(rate / part), From: 100 * time.Microsecond, Length: length * time.Second}.Offer(s.user)
			},
			func() {
				replay.Traffic{Every: 11 * time.Millisecond, From: 300 * time.Microsecond, Length: length * time.Second}.Offer(func(int) { s.look() })
			},
		)
	}
	replay.Together(func() { play(old) }, func() { play(now) })

	sick := func(l *replay.Log) *replay.Log { return l.Arrived(begin+time.Second, end-1500*time.Millisecond) }
	r.Row(fmt.Sprintf("inventory at 10 s: most threads busy, of %d", busy/part), replay.Is(old.threads.Busy.Peak(), busy/part), replay.AtMost(now.threads.Busy.Peak(), busy/part/2))
	r.Row("  orders refused for want of a thread", replay.AtLeast(old.orders.Total(replay.Refused), 1000/part), replay.Is(now.orders.Total(replay.Refused), 0))
	r.Row("  % of the orders that complete",
		replay.Is(percent(sick(old.orders), replay.Served, replay.Degraded), 0), replay.Is(percent(sick(now.orders), replay.Served, replay.Degraded), 100))
	r.Head("% of the orders that complete while the inventory is slow")
	r.Row("  of these, % marked as degraded", replay.None, replay.AtLeast(percent(sick(now.orders), replay.Degraded), 99))
	r.Row("  degraded before the inventory is slow", replay.None, replay.Is(now.orders.From(0, begin).Total(replay.Degraded), 0))
	r.Row("  orders: p99 of the write, times that before",
		replay.None, same(w, replay.Ratio(sick(newShop.orders.took).Quantile(0.99), newShop.orders.took.From(0, begin).Quantile(0.99))))
	r.Row("  catalogue: p99, times that before",
		replay.None, same(w, replay.Ratio(sick(now.pages).Quantile(0.99), now.pages.From(0, begin).Quantile(0.99))))
	r.Row("  catalogue: % of the pages that are answered",
		replay.AtMost(percent(sick(old.pages), replay.Served), 60), replay.Is(percent(sick(now.pages), replay.Served), 100))
	load := func(s *shop) float64 {
		return float64(part*sick(s.inventory.calls).Total()) / (rate * (end - begin - 2500*time.Millisecond).Seconds())
	}
	r.Row("  load at the inventory, times offered", replay.AtLeast(load(oldShop), 1.5), replay.AtMost(load(newShop), 1.2))

	recovery(r, oldShop, newShop, part)
	r.Charts = charts(old, now, oldShop, newShop)
}

// same is a ratio that is 1 when nothing has changed. On real time nothing is ever twice the same.
func same(w *replay.World, ratio float64) replay.Figure {
	if w.Live() {
		return replay.AtMost(ratio, 1.5)
	}
	return replay.Near(ratio, 1, 0)
}

// recovery looks at the load that comes back.
func recovery(r *replay.Result, old, now *shop, part int) {
	share := func(n int) float64 { return float64(n*part) / rate }
	from := int(end / time.Second)
	was, is := old.inventory.calls.PerSecond(length, replay.Served), now.inventory.calls.PerSecond(length, replay.Served)
	r.Row("inventory well again: load in the first second, times offered", replay.AtLeast(share(was[from]), 1), replay.AtMost(share(is[from]), 0.3))
	rise := func(counts []int) (most int) {
		for i := from; i < length; i++ {
			most = max(most, counts[i]-counts[i-1])
		}
		return most
	}
	r.Row("  largest rise within a second, times offered", replay.None, replay.AtMost(share(rise(is)), 0.25))
	r.Row("  load in the last second, times offered", replay.Near(share(was[length-1]), 1, 0.01), replay.Near(share(is[length-1]), 1, 0.01))
}

func percent(l *replay.Log, what ...replay.Outcome) float64 {
	return 100 * float64(l.Total(what...)) / float64(l.Total())
}

func charts(old, now *site, oldShop, newShop *shop) []replay.Chart {
	return []replay.Chart{
		{Title: "orders that complete", Unit: "per second", Before: completed(old), After: completed(now)},
		{Title: "latency", Unit: "ms", Before: latency(old), After: latency(now)},
		{Title: "refused and failed", Unit: "per second", Before: lost(old), After: lost(now)},
		{
			Title: "load at the inventory, and busy threads", Unit: "per second, threads",
			Before: []replay.Line{oldShop.inventory.calls.Counts("calls", length), old.threads.Busy.Line("threads", length)},
			After:  []replay.Line{newShop.inventory.calls.Counts("calls", length), now.threads.Busy.Line("threads", length)},
		},
	}
}

func completed(s *site) []replay.Line {
	return []replay.Line{s.orders.Counts("answered", length, replay.Served), s.orders.Counts("degraded", length, replay.Degraded)}
}

func latency(s *site) []replay.Line {
	return []replay.Line{s.orders.Latency("orders, p99", length, 0.99), s.pages.Latency("catalogue, p99", length, 0.99)}
}

func lost(s *site) []replay.Line {
	return []replay.Line{
		s.orders.Counts("orders refused", length, replay.Refused), s.orders.Counts("orders failed", length, replay.Failed),
		s.pages.Counts("pages refused", length, replay.Refused),
	}
}

// amplification: a dependency that is dead, a service that has threads enough, and nothing
// but the tries. A user who tries again is left out.
func amplification(w *replay.World, r *replay.Result) {
	const seconds = 2
	load := func(call func(ctx context.Context, sku int) (bool, error), s *shop) float64 {
		replay.Traffic{Every: replay.PerSecond(rate), From: 100 * time.Microsecond, Length: seconds * time.Second}.Offer(func(i int) {
			_, _ = call(context.Background(), i) // what counts is how often it was tried
		})
		return float64(s.inventory.calls.Total()) / (rate * seconds)
	}
	shops := make([]*shop, 4)
	for i := range shops {
		shops[i] = newShop(w, dead)
	}
	// The budget alone: a breaker that does not open, and a pool that is not full.
	budget := newAfter(shops[2], w.Pipelines(afterYAML, replay.Setup{Settings: slices.Concat(noBreaker, []string{"inventory.inventory.Workers=10000"})}))
	whole := newAfter(shops[3], w.Pipelines(afterYAML, replay.Setup{Settings: noJitter, Store: replay.NewStore(270 * time.Microsecond)}))
	var client, gateway, budgeted, all float64
	replay.Together(
		func() { client = load((&before{shops[0]}).order, shops[0]) },
		func() { gateway = load((&before{shops[1]}).gateway, shops[1]) },
		func() { budgeted = load(budget.order, shops[2]) },
		func() { all = load(whole.order, shops[3]) },
	)
	r.Row("inventory dead: calls a second it gets of 1,000", replay.Is(rate*client, 3000), replay.AtMost(rate*budgeted, 1200))
	r.Row("  with one more try by the gateway for each", replay.Is(rate*gateway, 6000), replay.None)
	r.Row("  with the breaker, too", replay.None, replay.AtMost(rate*all, 500))
}

// fullPool: a pool with nothing behind it that answers, and no breaker to notice.
func fullPool(w *replay.World, r *replay.Result) {
	s := newShop(w, dead)
	now := newSite(newAfter(s, w.Pipelines(afterYAML, replay.Setup{Settings: slices.Concat(noBreaker, []string{"inventory.inventory.Queue=none", "inventory.inventory.MaxWait=0s"})})), busy)
	replay.Together(
		func() {
			replay.Traffic{Every: replay.PerSecond(rate), From: 100 * time.Microsecond, Length: 400 * time.Millisecond}.Offer(now.user)
		},
		func() {
			time.Sleep(350 * time.Millisecond)
			r.Row("pool of the inventory full: calls it runs", replay.None, replay.Is(s.inventory.calls.Total(), 100))
			r.Row("  goroutines that a profile shows as pool=inventory", replay.None, replay.Is(labelled(w, "inventory"), 100))
		},
	)
	// An order that found the pool full took as long as its own write.
	longest := now.orders.From(0, 420*time.Millisecond).Quantile(1, replay.Degraded)
	r.Row("  orders answered by the fallback meanwhile", replay.None, replay.Is(now.orders.From(0, 425*time.Millisecond).Total(replay.Degraded), 300))
	r.Row("  longest of these, 20 ms of the write and a trip to Redis included", replay.None, replay.AtMost(longest, 21*time.Millisecond))
}
