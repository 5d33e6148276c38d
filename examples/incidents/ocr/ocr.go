// Package ocr replays the incident of a paid dependency with a hard quota.
//
// A vendor recognizes text, in 0.8 s for each document, and allows 10 a second. People wait
// for some documents; batches bring more. Both took their tokens from one limiter, in one
// line without an end, so a batch of 600 files was in front of everybody, on 600 of the 800
// workers. What failed was tried again past the limiter, also when the vendor had said that
// the quota was exceeded, and also when the file could not be read.
package ocr

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Replay plays the incident, before and after.
func Replay() (*replay.Result, error) {
	r := &replay.Result{Incident: "ocr"}
	return r, replay.Run(
		func(w *replay.World) { morning(w, r) },
		func(w *replay.World) { noWait(w, r) },
		func(w *replay.World) { people(w, r) },
		func(w *replay.World) { thirty(w, r) },
		func(w *replay.World) { floor(w, r) },
		func(w *replay.World) { noTotal(w, r) },
		func(w *replay.World) { bypass(w, r) },
		func(w *replay.World) { rules(w, r) },
		func(w *replay.World) { badFile(w, r) },
		func(w *replay.World) { lostTokens(w, r) },
	)
}

// Live plays what can be seen on real time: the vendor answers over HTTP.
func Live(ctx context.Context, live *replay.Live) (*replay.Result, error) {
	r := &replay.Result{Incident: "ocr"}
	err := replay.RunLive(
		ctx, live,
		func(w *replay.World) { thirty(w, r) },
		func(w *replay.World) { halfMinute(w, r) },
	)
	r.Loosen()
	return r, err
}

// halfMinute: people send 5 a second, and batches 8.
func halfMinute(w *replay.World, r *replay.Result) {
	was := old(w)
	// Over a network calls arrive closer together than they were let in, and what is exact here is
	// eleven at the vendor now and then. So the window is a little longer than the vendor's.
	now, _ := with(w, specs(w, func(l *ratelimit.Lanes) { l.Total.Window = 1050 * time.Millisecond }))
	play := func(s *site) { trafficFor(30*time.Second, s, 5, 8, false) }
	replay.Together(func() { play(was) }, func() { play(now) })
	r.Row("people 5/s, batches 8/s: most at the vendor in a second", replay.AtLeast(was.vendor.calls.Most(), 11), replay.AtMost(now.vendor.calls.Most(), 10))
	r.Row("  quota errors of the vendor", replay.AtLeast(was.vendor.quota, 10), replay.Is(now.vendor.quota, 0))
	r.Row("  people: p99", replay.AtLeast(was.realtime.Quantile(0.99), 2*time.Second), replay.AtMost(now.realtime.Quantile(0.99, replay.Served), 1100*time.Millisecond))
	r.Row("  people: % answered with text", replay.Seen(percent(was.realtime)), replay.AtLeast(percent(now.realtime), 99))
	r.Row("  batches: texts a second, mean", replay.None, replay.Near(replay.Mean(now.batch.PerSecond(30, replay.Served)[3:]), 4, 0.2))
}

// specs are the policies of breakwater.yaml, with settings and lanes changed.
func specs(w *replay.World, change func(*ratelimit.Lanes), settings ...string) []policy.Policy {
	all := w.Load(afterYAML, replay.Setup{Settings: settings}).Dependencies[0].Specs()
	for i, spec := range all {
		if lanes, ok := spec.(ratelimit.Lanes); ok && change != nil {
			lanes.Lanes = slices.Clone(lanes.Lanes)
			change(&lanes)
			all[i] = lanes
		}
	}
	return all
}

// with is the site behind pipelines.
func with(w *replay.World, specs []policy.Policy) (*site, *after) {
	v, registry := newVendor(w), w.Registry()
	a, err := newAfter(v, specs, registry)
	w.Must(err)
	for _, p := range a.lanes {
		w.AtEnd(func() { w.Must(registry.Remove(context.Background(), p.Name())) })
	}
	return newSite(a, v), a
}

func as(w *replay.World) (*site, *after) { return with(w, specs(w, nil)) }

func old(w *replay.World) *site {
	v := newVendor(w)
	b := newBefore(v)
	w.AtEnd(b.stop)
	return newSite(b, v)
}

const length = 3 * time.Minute

// traffic is documents a second, of people and of batches. With piles, the batches begin
// after 10 s, and a minute apart come 600 files at once.
func traffic(s *site, people, batches int, pile bool) { trafficFor(length, s, people, batches, pile) }

func trafficFor(length time.Duration, s *site, people, batches int, pile bool) {
	offer := func(perSecond int, from time.Duration, one func(document)) func() {
		if perSecond == 0 {
			return func() {}
		}
		return func() {
			replay.Traffic{Every: replay.PerSecond(perSecond), From: from, Length: length - from}.Offer(func(int) { one(document{}) })
		}
	}
	piles, begin := func() {}, 7*time.Millisecond
	if pile {
		begin += 10 * time.Second
		piles = func() {
			for _, at := range []time.Duration{begin, 49 * time.Second} {
				time.Sleep(at + 34*time.Millisecond)
				replay.Traffic{Every: 3 * time.Microsecond, Length: 1800 * time.Microsecond}.Offer(func(int) { go s.batches(document{}) })
			}
		}
	}
	replay.Together(offer(people, 100*time.Microsecond, s.people), offer(batches, begin, s.batches), piles)
}

// morning: people send 5 a second, batches 8, and twice 600 files at once.
func morning(w *replay.World, r *replay.Result) {
	was := old(w)
	now, a := as(w)
	day := func(s *site) {
		replay.Together(
			func() { traffic(s, 5, 8, true) },
			func() {
				replay.Traffic{Every: 59 * time.Millisecond, From: 3 * time.Millisecond, Length: length}.Offer(func(int) { s.upload() })
			},
		)
	}
	replay.Together(func() { day(was) }, func() { day(now) })

	r.Row("people 5/s, batches 8/s and piles of 600: most at the vendor in a second", replay.AtLeast(was.vendor.calls.Most(), 25), replay.AtMost(now.vendor.calls.Most(), 10))
	r.Head("most calls at the vendor in a second, of the 10 it allows")
	r.Row("  quota errors of the vendor", replay.AtLeast(was.vendor.quota, 100), replay.Is(now.vendor.quota, 0))
	r.Row("  people: p99", replay.AtLeast(was.realtime.Quantile(0.99), 5*time.Second), replay.AtMost(now.realtime.Quantile(0.99, replay.Served), 1100*time.Millisecond))
	r.Row("  people: % answered with text", replay.Seen(percent(was.realtime)), replay.AtLeast(percent(now.realtime), 99))
	r.Row("  most workers busy, of 800", replay.Is(was.workers.Busy.Peak(), 800), replay.AtMost(now.workers.Busy.Peak(), 210))
	r.Row("  of these by recognition, at most in flight and waiting", replay.AtLeast(was.ocr.Peak(), 600), replay.AtMost(now.ocr.Peak(), 8+8+8+16))
	r.Row("  uploads: longest wait for a worker", replay.AtLeast(was.uploads.Quantile(1)-uploadTime, 500*time.Millisecond), replay.Is(now.uploads.Quantile(1)-uploadTime, 0))
	least, most := replay.Extremes(was.batch.PerSecond(180, replay.Served)[15:])
	aLeast, aMost := replay.Extremes(now.batch.PerSecond(180, replay.Served)[15:])
	r.Row("  batches: least texts in a second", replay.AtMost(least, 5), replay.AtLeast(aLeast, 3))
	r.Row("  batches: most texts in a second", replay.AtLeast(most, 8), replay.AtMost(aMost, 5))
	r.Row("  batches: texts a second, mean", replay.Seen(mean(was)), replay.Near(mean(now), 4, 0.1))
	r.Row("  refusals that are 429 with Retry-After, %", replay.None, replay.Is(100*float64(now.answers)/float64(now.refused), 100))
	lines := strings.Count(now.lines.String(), "lane=batch") + strings.Count(now.lines.String(), "lane=realtime")
	r.Row("  refusals whose line in the log says lane and reason, %", replay.None, replay.Is(100*float64(min(lines, strings.Count(now.lines.String(), "reason=")))/float64(now.refused), 100))
	r.Row("  refusals that the metrics show by lane and reason, %", replay.None, replay.Is(100*float64(counted(a))/float64(now.refused), 100))
	r.Charts = charts(was, now)
}

// mean is the texts of batches a second, once the pile has come.
func mean(s *site) float64 {
	return replay.Mean(s.batch.PerSecond(180, replay.Served)[15:])
}

// counted adds up the refusals that the pipelines of both lanes count by reason.
func counted(a *after) (n int) {
	for _, p := range a.lanes {
		for _, s := range p.Snapshot().Policies {
			for _, rejected := range s.Rejected {
				n += int(rejected)
			}
		}
	}
	return n
}

func percent(l *replay.Log) float64 {
	return 100 * float64(l.Total(replay.Served)) / float64(l.Total())
}

func charts(was, now *site) []replay.Chart {
	const seconds = int(length / time.Second)
	texts := func(s *site) []replay.Line {
		return []replay.Line{s.realtime.Counts("people", seconds, replay.Served), s.batch.Counts("batches", seconds, replay.Served)}
	}
	latency := func(s *site) []replay.Line {
		return []replay.Line{s.realtime.Latency("people, p99", seconds, 0.99), s.batch.Latency("batches, p99", seconds, 0.99, replay.Served)}
	}
	lost := func(s *site) []replay.Line {
		return []replay.Line{
			s.realtime.Counts("people", seconds, replay.Refused, replay.Failed), s.batch.Counts("batches", seconds, replay.Refused, replay.Failed),
			s.uploads.Counts("uploads", seconds, replay.Failed),
		}
	}
	state := func(s *site) []replay.Line {
		return []replay.Line{s.workers.Busy.Line("workers", seconds), s.ocr.Line("by recognition", seconds)}
	}
	return []replay.Chart{
		{Title: "texts", Unit: "per second", Before: texts(was), After: texts(now)},
		{Title: "latency", Unit: "ms", Before: latency(was), After: latency(now)},
		{Title: "refused and failed", Unit: "per second", Before: lost(was), After: lost(now)},
		{Title: "busy workers", Unit: "of 800", Before: state(was), After: state(now)},
	}
}

// noWait: the same without a wait in the lane of the people.
func noWait(w *replay.World, r *replay.Result) {
	now, _ := with(w, specs(w, func(l *ratelimit.Lanes) { l.Lanes[0].MaxWait, l.Lanes[0].MaxWaiters = 0, 0 }))
	traffic(now, 5, 8, false)
	r.Row("people 5/s, batches 8/s, nobody waits: people's p99", replay.None, replay.AtMost(now.realtime.Quantile(0.99, replay.Served), 900*time.Millisecond))
	r.Row("  most at the vendor in a second", replay.None, replay.AtMost(now.vendor.calls.Most(), 10))
}

// people alone: 8 a second for 3 min.
func people(w *replay.World, r *replay.Result) {
	now, _ := as(w)
	traffic(now, 8, 0, false)
	admitted := now.realtime.Total(replay.Served)
	r.Row("people 8/s for 3 min: offered", replay.None, replay.Is(now.realtime.Total(), 1440))
	r.Row("  admitted", replay.None, replay.Between(admitted, 1087, 1089))
	r.Row("  refused", replay.None, replay.Is(now.realtime.Total(replay.Refused), 1440-admitted))
}

// thirty at one instant.
func thirty(w *replay.World, r *replay.Result) {
	now, _ := as(w)
	replay.Traffic{Every: 1, Length: 30}.Offer(func(int) { now.people(document{}) })
	r.Row("30 at one instant: start", replay.None, replay.Is(now.vendor.calls.Total(), 8))
}

// floor: people come to 8 a second, more than their lane has, so batches yield all the time.
func floor(w *replay.World, r *replay.Result) {
	run := func(change func(*ratelimit.Lanes)) int {
		now, _ := with(w, specs(w, change))
		replay.Together(
			func() { traffic(now, 8, 0, false) },
			func() {
				// When people have used up what their lane had stored.
				replay.Traffic{Every: replay.PerSecond(8), From: 10*time.Second + 7*time.Millisecond, Length: length - 12*time.Second}.Offer(func(int) { now.batches(document{}) })
			},
		)
		return now.batch.Total(replay.Served)
	}
	without := run(func(l *ratelimit.Lanes) { l.Lanes[1].Floor = ratelimit.Rate{Tokens: -1} })
	r.Row("people 8/s, batches yield: texts of batches in 168 s", replay.Is(without, 0), replay.Near(run(nil), 84, 1))
}

// noTotal: as the lanes were written down, with nothing over both.
func noTotal(w *replay.World, r *replay.Result) {
	lanes := func(length time.Duration, change func(*ratelimit.Lanes)) int {
		for _, spec := range specs(w, change) {
			if l, ok := spec.(ratelimit.Lanes); ok {
				set, err := ratelimit.NewLaneSet("", l)
				w.Must(err)
				return letIn(set, length)
			}
		}
		return -1
	}
	r.Row("both lanes full, all at once: let in within a second",
		replay.Is(lanes(time.Second+1, func(l *ratelimit.Lanes) {
			l.Total, l.Lanes[1].YieldTo, l.Lanes[1].YieldBelow = ratelimit.SlidingWindow{}, "", 0
		}), 28),
		replay.AtMost(lanes(time.Second, nil), 10))
}

// letIn counts what the lanes let in within a time, if as much comes as they let in.
func letIn(set *ratelimit.LaneSet, length time.Duration) (n int) {
	start := time.Now()
	for at := time.Duration(0); at < length; at += time.Millisecond {
		for _, lane := range []string{"realtime", "batch"} {
			for {
				if _, ok := set.Lane(lane).Take(start.Add(at), 1); !ok {
					break
				}
				n++
			}
		}
	}
	return n
}
