// Package aggregator replays the incident of ten times the traffic in a minute.
//
// A platform that aggregates data got 2,000 requests a second on two nodes, and then
// 20,000. Response times went from 50 ms to 5 s, and more than 30 % of the requests failed:
// all of them waited for one of the 100 connections of the database. The load tests that
// followed found which rules hold, and where each one bends.
package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// Replay plays the incident, before and after.
func Replay() (*replay.Result, error) {
	r := &replay.Result{Incident: "aggregator"}
	return r, replay.Run(
		func(w *replay.World) { surge(w, r) },
		func(w *replay.World) { refuse(w, r) },
		func(w *replay.World) { pace(w, r) },
		func(w *replay.World) { concurrency(w, r) },
		func(w *replay.World) { shops(w, r) },
		func(w *replay.World) { breakers(w, r) },
		func(w *replay.World) { clients(w, r) },
		func(w *replay.World) { tokenServer(w, r) },
		func(w *replay.World) { connections(w, r) },
		func(w *replay.World) { stampede(w, r) },
		func(w *replay.World) { later(w, r) },
	)
}

// The surge, on one of the two nodes: 1,000 requests a second, and 10,000 for 2.5 s.
const (
	begin  = 2 * time.Second
	end    = 4500 * time.Millisecond
	length = 10
)

// now is the platform behind pipelines.
func as(w *replay.World, db *database, settings ...string) *after {
	a, err := newAfter(db, w.Pipelines(afterYAML, replay.Setup{Settings: settings}))
	w.Must(err)
	w.AtEnd(func() { w.Must(a.hot.Close(context.Background())) })
	return a
}

func surge(w *replay.World, r *replay.Result) {
	was := &before{db: newDatabase(query)}
	now := as(w, newDatabase(query))
	play := func(p platform) *replay.Log {
		log := replay.NewLog()
		request := func(i int) {
			arrived := time.Now()
			record(log, arrived, p.aggregate(context.Background(), fmt.Sprint("shop ", i%200)))
		}
		replay.Together(
			func() {
				replay.Traffic{Every: replay.PerSecond(1000), From: 100 * time.Microsecond, Length: length*time.Second - time.Second}.Offer(request)
			},
			func() {
				replay.Traffic{Every: replay.PerSecond(9000), From: begin + 30*time.Microsecond, Length: end - begin}.Offer(request)
			},
		)
		return log
	}
	var old, after *replay.Log
	replay.Together(func() { old = play(was) }, func() { after = play(now) })
	during := func(l *replay.Log) *replay.Log { return l.Arrived(begin, end) }
	r.Row("1,000/s, then 10,000/s: p99 of the answers before it", replay.Is(round(old.Arrived(0, begin).Quantile(0.99)), 50*time.Millisecond), replay.Is(round(after.Arrived(0, begin).Quantile(0.99)), 50*time.Millisecond))
	r.Row("  p99 of the answers meanwhile", replay.AtLeast(round(during(old).Quantile(0.99)), 5*time.Second), replay.AtMost(round(during(after).Quantile(0.99, replay.Served)), 100*time.Millisecond))
	r.Head("p99 of the answers at ten times the traffic")
	r.Row("  % that fail, after 5 s", replay.AtLeast(percent(during(old), replay.Failed), 30), replay.Is(percent(during(after), replay.Failed), 0))
	r.Row("  longest that a refusal takes", replay.None, replay.Is(during(after).Quantile(1, replay.Refused), 0))
	r.Row("  answers a second meanwhile", replay.Seen(perSecond(during(old))), replay.Near(perSecond(during(after)), 1000, 30))
	r.Row("  p99 a second after it", replay.AtLeast(round(old.From(end+time.Second, end+2*time.Second).Quantile(0.99)), time.Second), replay.Is(round(after.From(end+time.Second, end+2*time.Second).Quantile(0.99)), 50*time.Millisecond))
	r.Charts = charts(old, after, was.db, now.db)
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func percent(l *replay.Log, what ...replay.Outcome) float64 {
	return 100 * float64(l.Total(what...)) / float64(l.Total())
}

// perSecond is how many of the requests were answered, by when they came.
func perSecond(l *replay.Log) float64 {
	return float64(l.Total(replay.Served)) / (end - begin).Seconds()
}

func charts(old, now *replay.Log, oldDB, newDB *database) []replay.Chart {
	latency := func(l *replay.Log) []replay.Line {
		return []replay.Line{l.Latency("answers, p99", length, 0.99, replay.Served), l.Latency("answers, p50", length, 0.5, replay.Served)}
	}
	lost := func(l *replay.Log) []replay.Line {
		return []replay.Line{l.Counts("refused", length, replay.Refused), l.Counts("failed", length, replay.Failed)}
	}
	state := func(d *database) []replay.Line {
		return []replay.Line{d.longest.Latency("p99", length, 0.99)}
	}
	return []replay.Chart{
		{Title: "answered", Unit: "per second", Before: []replay.Line{old.Counts("requests", length, replay.Served)}, After: []replay.Line{now.Counts("requests", length, replay.Served)}},
		{Title: "latency", Unit: "ms", Before: latency(old), After: latency(now)},
		{Title: "refused and failed", Unit: "per second", Before: lost(old), After: lost(now)},
		{Title: "wait for a connection", Unit: "ms", Before: state(oldDB), After: state(newDB)},
	}
}
