// Package captcha replays the incident of a limiter that became the amplifier.
//
// A login page had its captchas guarded by a limit of 2 per second, whose callers waited
// for up to 3 s, each on one of the 200 workers of the process. The store behind it stalled
// for 40 s. When it came back, 100 requests a second arrived, 98 of them waited, and 2 s
// later no worker was left, for captchas or anything else. Nobody was told: a refusal was
// an answer with status 200 and no picture.
package captcha

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// Replay plays the incident, before and after.
func Replay() (*replay.Result, error) {
	r := &replay.Result{Incident: "captcha"}
	return r, replay.Run(
		func(w *replay.World) { burst(w, r) },
		func(w *replay.World) { trickle(w, r) },
		func(w *replay.World) { steady(w, r) },
		func(w *replay.World) { outage(w, r) },
		func(w *replay.World) { reserving(w, r) },
		func(w *replay.World) { change(w, r) },
		func(w *replay.World) { gateway(w, r) },
	)
}

// quiet is a log that nobody reads.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// oldSite runs the code as it was.
func oldSite(w *replay.World, stall time.Duration) *site {
	b := newBefore(newStore(stall))
	w.AtEnd(b.stop)
	return newSite(200, b)
}

// newSiteWith runs the code as it is, with settings other than those of the file.
func newSiteWith(w *replay.World, stall time.Duration, workers int, settings ...string) *site {
	p := w.Pipelines(afterYAML, replay.Setup{Settings: settings})["captcha"]
	return newSite(workers, newAfter(newStore(stall), p, quiet()))
}

// perSecond is the rate of the load tests, in the shape of the write-up: a bucket of one
// more than the rate.
var perSecond = []string{"captcha.ratelimit.Rate=1/s", "captcha.ratelimit.Burst=2"}

// burst: 50 at one instant.
func burst(w *replay.World, r *replay.Result) {
	old, now := oldSite(w, 0), newSiteWith(w, 0, 200, perSecond...)
	var sizes, soon int
	fifty := replay.Traffic{Every: 1, Length: 50}
	replay.Together(
		func() { fifty.Offer(func(int) { old.get() }) },
		func() {
			fifty.Offer(func(int) {
				answer := now.get()
				if answer.Code == http.StatusTooManyRequests {
					now.mu.Lock()
					defer now.mu.Unlock()
					if answer.Header().Get("Content-Length") == "0" && answer.Size == 0 {
						sizes++
					}
					if answer.Header().Get("Retry-After") == "1" {
						soon++
					}
				}
			})
		},
	)
	r.Row("burst of 50 at 1/s: 200 with a picture", replay.Seen(old.pictures.Total(replay.Served)), replay.Is(now.pictures.Total(replay.Served), 1))
	r.Row("burst of 50 at 1/s: 429", replay.Is(old.statuses[429], 0), replay.Is(now.statuses[429], 49))
	r.Row("  of these with Content-Length: 0", replay.None, replay.Is(sizes, 49))
	r.Row("  of these with Retry-After: 1", replay.None, replay.Is(soon, 49))
	r.Row("  200 without a picture", replay.AtLeast(old.empty, 40), replay.Is(now.empty, 0))
}

// trickle: 2.5 requests a second for 12 s, at 1 per second.
func trickle(w *replay.World, r *replay.Result) {
	traffic := replay.Traffic{Every: 400 * time.Millisecond, Length: 12 * time.Second}
	now := newSiteWith(w, 0, 200, perSecond...)
	narrow := newSiteWith(w, 0, 200, "captcha.ratelimit.Rate=1/s", "captcha.ratelimit.Burst=1")
	replay.Together(
		func() { traffic.Offer(func(int) { now.get() }) },
		func() { traffic.Offer(func(int) { narrow.get() }) },
	)
	least, most := replay.Extremes(now.pictures.PerSecond(12, replay.Served))
	first, _ := now.pictures.First(replay.Served)
	r.Row("2.5/s for 12 s at 1/s: pass", replay.None, replay.Is(now.pictures.Total(replay.Served), 12))
	r.Row("  least in a second", replay.None, replay.Is(least, 1))
	r.Row("  most in a second", replay.None, replay.Is(most, 1))
	r.Row("  the first is answered after", replay.None, replay.Is(first, 5*time.Millisecond))
	r.Row("  with a burst of 1, which loses fractions", replay.Is(narrow.pictures.Total(replay.Served), 10), replay.None)
}

// steady: 20 requests a second for 10 s, at the 10 per second of the file.
func steady(w *replay.World, r *replay.Result) {
	now := newSiteWith(w, 0, 200)
	replay.Traffic{Every: replay.PerSecond(20), Length: 10 * time.Second}.Offer(func(int) { now.get() })
	passed := now.pictures.Total(replay.Served)
	r.Row("20/s for 10 s at 10/s: pass", replay.None, replay.Near(passed, 100, 2))
	r.Row("  429", replay.None, replay.Is(now.statuses[429], 200-passed))
	least, most := replay.Extremes(now.pictures.PerSecond(10, replay.Served))
	r.Row("  least in a second", replay.None, replay.AtLeast(least, 9))
	r.Row("  most in a second", replay.None, replay.AtMost(most, 11))
}

// The outage: 40 s in which the store answers nobody, then 20 s of 100 requests a second.
const (
	stall  = 40 * time.Second
	flood  = 20 * time.Second
	length = int((stall + flood) / time.Second)
)

// play plays the outage. In the stall captchas are asked for at a rate of their own.
func play(s *site, inStall int) {
	replay.Together(
		func() {
			replay.Traffic{Every: replay.PerSecond(inStall), From: 301 * time.Microsecond, Length: stall - time.Millisecond}.Offer(func(int) { s.get() })
		},
		func() {
			replay.Traffic{Every: replay.PerSecond(100), From: stall + 700*time.Microsecond, Length: flood}.Offer(func(int) { s.get() })
		},
		func() { pages(s) },
	)
}

// pages is what else the process has to do.
func pages(s *site) {
	replay.Traffic{Every: replay.PerSecond(20), From: 3 * time.Millisecond, Length: stall + flood}.Offer(func(int) { s.page() })
}

func outage(w *replay.World, r *replay.Result) {
	old := oldSite(w, stall)
	p := w.Pipelines(afterYAML, replay.Setup{})["captcha"]
	lines := new(strings.Builder)
	now := newSite(200, newAfter(newStore(stall), p, slog.New(slog.NewTextHandler(lines, nil))))
	alone := newSiteWith(w, 0, 200)
	rateOnly := newSiteWith(w, stall, 1000, "captcha.bulkhead.Limit=1000", "captcha.timeout.Attempt=1h")
	replay.Together(
		func() { play(old, 1) },
		func() { play(now, 20) },
		func() { pages(alone) },
		func() {
			replay.Traffic{Every: replay.PerSecond(20), From: time.Millisecond, Length: stall - 10*time.Millisecond}.Offer(func(int) { rateOnly.get() })
		},
	)

	full, _ := old.server.Busy.Reached(200)
	r.Row("40 s stall, then 100/s: all 200 workers busy after", replay.Between(full-stall, 2*time.Second, 2100*time.Millisecond), replay.Never(now.server.Busy, 200))
	inSecond := old.pictures.Arrived(stall+time.Second, stall+2*time.Second)
	r.Row("  of 100 that came in the 2nd second, waited in vain", replay.Is(inSecond.Total()-inSecond.Total(replay.Served), 98), replay.None)
	r.Row("  longest that a refused call held its worker", replay.Is(old.refusedHeld, 3*time.Second), replay.Is(now.refusedHeld, 0))
	bulkhead := replay.Find(p, "bulkhead").Bulkhead.HighWater
	r.Row("  most workers held by captcha", replay.Is(old.held.Peak(), 200), replay.AtMost(bulkhead, 20))
	r.Row("  the same by the rate alone, in the stall", replay.Near(rateOnly.held.Peak(), 400, 1), replay.None)

	late := func(s *site) *replay.Log { return s.pages.Arrived(stall+3*time.Second, stall+flood) }
	r.Row("  healthy endpoint: % answered within 1 s, from the 4th second",
		replay.Is(100*late(old).Within(time.Second, replay.Served), 0), replay.Is(100*late(now).Within(time.Second, replay.Served), 100))
	r.Head("% of a healthy endpoint's requests answered within 1 s")
	undisturbed := alone.pages.Quantile(0.99)
	r.Row("  healthy endpoint: p99, times that without an incident",
		replay.AtLeast(replay.Ratio(old.pages.Arrived(stall, stall+flood).Quantile(0.99), undisturbed), 100),
		replay.AtMost(replay.Ratio(now.pages.Quantile(0.99), undisturbed), 1.5))

	served := now.pictures.PerSecond(length, replay.Served)
	least, most := replay.Extremes(served[41:60])
	r.Row("  captchas in the stall", replay.Is(replay.Sum(old.pictures.PerSecond(40, replay.Served)), 0), replay.Is(replay.Sum(served[:40]), 0))
	r.Row("  captchas in the 1st second after it", replay.Seen(old.pictures.PerSecond(length, replay.Served)[40]), replay.Between(served[40], 10, 10+11))
	r.Row("  captchas a second from then on: least", replay.None, replay.AtLeast(least, 9))
	r.Row("  captchas a second from then on: most", replay.None, replay.AtMost(most, 11))
	r.Row("  lines of the log at the start that say 10/s", replay.None, replay.Is(strings.Count(lines.String(), `rate=10/s`), 1))
	r.Charts = charts(old, now)
}

// reserving: the same patience, with a limiter that knows how long each will wait, as
// before.yaml sets it up.
func reserving(w *replay.World, r *replay.Result) {
	p := w.Pipelines(beforeYAML, replay.Setup{})["captcha"]
	s := newSite(200, newAfter(newStore(0), p, quiet()))
	most := 0
	replay.Traffic{Every: replay.PerSecond(100), Length: flood}.Offer(func(int) {
		s.get()
		if l := replay.Find(p, "pacer").Limiter; l != nil {
			s.mu.Lock()
			most = max(most, l.Waiting)
			s.mu.Unlock()
		}
	})
	r.Row("a limiter that reserves (before.yaml): most that wait", replay.AtMost(most, 6), replay.None)
}

func charts(old, now *site) []replay.Chart {
	latency := func(s *site) []replay.Line {
		return []replay.Line{s.pages.Latency("healthy endpoint, p99", length, 0.99), s.pictures.Latency("captcha, p99", length, 0.99)}
	}
	return []replay.Chart{
		{Title: "answered", Unit: "per second", Before: answered(old), After: answered(now)},
		{Title: "latency", Unit: "ms", Before: latency(old), After: latency(now)},
		{
			Title: "refused", Unit: "per second",
			Before: []replay.Line{old.pictures.Counts("empty 200", length, replay.Refused), old.pages.Counts("healthy endpoint, given up", length, replay.Failed)},
			After:  []replay.Line{now.pictures.Counts("429", length, replay.Refused), now.pages.Counts("healthy endpoint, given up", length, replay.Failed)},
		},
		{
			Title: "busy workers", Unit: "of 200",
			Before: []replay.Line{old.server.Busy.Line("all", length), old.held.Line("captcha", length)},
			After:  []replay.Line{now.server.Busy.Line("all", length), now.held.Line("captcha", length)},
		},
	}
}

func answered(s *site) []replay.Line {
	return []replay.Line{s.pages.Counts("healthy endpoint", length, replay.Served), s.pictures.Counts("captcha", length, replay.Served)}
}
