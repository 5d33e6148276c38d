// Package ask replays the incident of one limit for many instances.
//
// A question endpoint had a limit of 10 questions a minute for each user, which each of its
// instances counted for itself, by the minutes of the clock: three instances let 30
// through, and 60 around the turn of a minute. Over its limits, the endpoint answered later
// and later, until it answered nobody.
package ask

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Replay plays the incident, before and after.
func Replay() (*replay.Result, error) {
	r := &replay.Result{Incident: "ask"}
	return r, replay.Run(
		func(w *replay.World) { hundred(w, r) },
		func(w *replay.World) { turn(w, r) },
		func(w *replay.World) { keys(w, r) },
		func(w *replay.World) { race(w, r) },
		func(w *replay.World) { users(w, r) },
		func(w *replay.World) { rules(w, r) },
		func(w *replay.World) { away(w, r) },
		func(w *replay.World) { chain(w, r) },
		func(w *replay.World) { overload(w, r) },
	)
}

// Live plays what can be seen on real time, over HTTP, with a Redis if there is one.
func Live(ctx context.Context, live *replay.Live) (*replay.Result, error) {
	r := &replay.Result{Incident: "ask"}
	err := replay.RunLive(
		ctx, live,
		func(w *replay.World) { hundred(w, r) },
		func(w *replay.World) { race(w, r) },
		func(w *replay.World) { users(w, r) },
		func(w *replay.World) { chain(w, r) },
		func(w *replay.World) { overload(w, r) },
	)
	r.Loosen()
	return r, err
}

// instances are three with one store, as a file sets them up.
func instances(w *replay.World, file []byte, store *replay.Store, d *dependency) []http.Handler {
	all := make([]http.Handler, 3)
	for i := range all {
		all[i] = instance(w, file, store, d)
	}
	return all
}

func instance(w *replay.World, file []byte, store *replay.Store, d *dependency) http.Handler {
	answers := w.Pipelines(file, replay.Setup{Store: store, Settings: []string{"answers.retry.Jitter=none"}})["answers"]
	h, err := newAfter(d, w.Pipeline("gateway", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(500), Burst: 100}), answers)
	w.Must(err)
	return w.OverHTTP(h)
}

func oldInstances(w *replay.World) []http.Handler {
	all := make([]http.Handler, 3)
	for i := range all {
		all[i] = w.OverHTTP(newBefore(newDependency(well)))
	}
	return all
}

func newStore() *replay.Store { return replay.NewStore(time.Millisecond) }

// statuses sends questions of a user to one instance after the other, and counts the
// answers.
func statuses(all []http.Handler, questions int, user string) map[int]int {
	counts := map[int]int{}
	for i := range questions {
		counts[get(all[i%len(all)], user).Code]++
	}
	return counts
}

// hundred questions of one user, one after the other.
func hundred(w *replay.World, r *replay.Result) {
	// A minute of the clock that turns meanwhile would let 30 more in, as it was.
	if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); w.Live() && left < 15*time.Second {
		time.Sleep(left)
	}
	was := statuses(oldInstances(w), 100, "alice")
	store := newStore()
	now := statuses(instances(w, afterYAML, store, newDependency(well)), 100, "alice")
	r.Row("100 questions through 3 instances: 200", replay.Is(was[200], 30), replay.Exactly(now[200], 10))
	r.Head("of 100 questions through 3 instances, answered; 10 may be")
	r.Row("  429", replay.Is(was[429], 70), replay.Exactly(now[429], 90))
	if !w.Live() {
		r.Row("  trips to the store", replay.None, replay.Is(store.Trips(), 100))
	}
}

// turn: ten questions just before a minute of the clock ends, and ten just after.
func turn(w *replay.World, r *replay.Result) {
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(55 * time.Second)))
	old, now := oldInstances(w)[:1], instances(w, afterYAML, newStore(), newDependency(well))
	var was, is int
	for range 2 {
		was += statuses(old, 10, "alice")[200]
		is += statuses(now, 10, "alice")[200]
		time.Sleep(2 * time.Second)
	}
	r.Row("10 before and 10 after the turn of a minute, one instance: 200", replay.Is(was, 20), replay.Is(is, 10))
}

// keys: each has a TTL, which a refused question does not extend.
func keys(w *replay.World, r *replay.Result) {
	store := newStore()
	all := instances(w, afterYAML, store, newDependency(well))
	begin := time.Now()
	statuses(all, 10, "alice")
	time.Sleep(time.Until(begin.Add(30 * time.Second)))
	statuses(all, 5, "alice")
	ttl, _ := store.TTL("alice")
	r.Row("TTL of a key 30 s after its first question, 5 refused just before", replay.None, replay.Between(ttl, 29900*time.Millisecond, 30*time.Second))
	time.Sleep(31 * time.Second)
	_, left := store.TTL("alice")
	r.Row("  keys that are left when it has ended", replay.None, replay.Is(left, 0))
	r.Row("  200 of the next 20 questions", replay.None, replay.Is(statuses(all, 20, "alice")[200], 10))
}

// race: 100 questions at one instant. Before, the count was read and written back.
func race(w *replay.World, r *replay.Result) {
	count, all := new(counter), instances(w, afterYAML, newStore(), newDependency(well))
	was, now := replay.NewGauge(), replay.NewGauge()
	replay.Together(
		func() {
			replay.Traffic{Every: 1, Length: 100}.Offer(func(int) {
				if count.allow() {
					was.Add(1)
				}
			})
		},
		func() {
			replay.Traffic{Every: 1, Length: 100}.Offer(func(i int) {
				if get(all[i%3], "alice").Code == http.StatusOK {
					now.Add(1)
				}
			})
		},
	)
	r.Row("100 questions at one instant: let in", replay.Is(was.Peak(), 100), replay.Is(now.Peak(), 10))
}

// users: the key is data, here the user. Any text can be one: a route, an address, a mix.
func users(w *replay.World, r *replay.Result) {
	all := instances(w, afterYAML, newStore(), newDependency(well))
	total := 0
	for i := range 5 {
		total += statuses(all, 20, "user "+strconv.Itoa(i))[200]
	}
	r.Row("5 users with 20 questions each: 200", replay.None, replay.Is(total, 50))
}

// rules: how it counts is data, too.
func rules(w *replay.World, r *replay.Result) {
	with := func(rule string) (inFirst, most int) {
		file := strings.Replace(string(afterYAML), "Rule: fixed_window, Limit: 10, Window: 60s", rule, 1)
		all := instances(w, []byte(file), newStore(), newDependency(well))
		log := replay.NewLog()
		replay.Traffic{Every: time.Second, From: time.Millisecond, Length: 4 * time.Minute}.Offer(func(i int) {
			log.Add(what(get(all[i%3], "alice")), time.Now())
		})
		for from := time.Duration(0); from < 3*time.Minute; from += time.Second {
			most = max(most, log.From(from, from+time.Minute).Total(replay.Served))
		}
		return log.From(0, time.Minute).Total(replay.Served), most
	}
	_, fixed := with("Rule: fixed_window, Limit: 10, Window: 60s")
	_, sliding := with("Rule: sliding_log, Limit: 10, Window: 60s")
	first, _ := with("Rate: 10/min, Burst: 10")
	r.Row("a question a second for 4 min, fixed window: most in 60 s", replay.None, replay.AtMost(fixed, 20))
	r.Row("  sliding window: most in 60 s", replay.None, replay.AtMost(sliding, 10))
	r.Row("  token bucket: in the first 60 s, the burst included", replay.None, replay.Near(first, 20, 1))
}

// away: without the store each instance has its share.
func away(w *replay.World, r *replay.Result) {
	store := newStore()
	store.Set(replay.Wrong)
	now := statuses(instances(w, afterYAML, store, newDependency(well)), 100, "alice")
	r.Row("100 questions through 3 instances, the store away: 200", replay.None, replay.Near(now[200], 10, 2))
}

// chain: the dependency is broken for 4 s.
func chain(w *replay.World, r *replay.Result) {
	start := time.Now()
	broken := func() bool { at := time.Since(start); return at >= time.Second && at < 5*time.Second }
	old := w.OverHTTP(newBefore(newDependency(broken)))
	now := instance(w, afterYAML, newStore(), newDependency(broken))
	play := func(h http.Handler) (log *replay.Log, bodies, problems int) {
		log = replay.NewLog()
		note := replay.NewGauge()
		uniform := replay.NewGauge()
		replay.Traffic{Every: replay.PerSecond(20), From: time.Millisecond, Length: 15 * time.Second}.Offer(func(i int) {
			arrived := time.Now()
			user := "user " + strconv.Itoa(i)
			if i%10 == 0 {
				user = "alice" // who asks too much
			}
			answer := get(h, user)
			log.Add(what(answer), arrived)
			if answer.Code >= 400 {
				note.Add(1)
				if answer.Header().Get("Content-Type") == "application/problem+json" {
					uniform.Add(1)
				}
			}
		})
		return log, note.Peak(), uniform.Peak()
	}
	var oldLog, nowLog *replay.Log
	var bodies, problems, oldBodies, oldProblems int
	replay.Together(
		func() { oldLog, oldBodies, oldProblems = play(old) },
		func() { nowLog, bodies, problems = play(now) },
	)
	sick := func(l *replay.Log) *replay.Log { return l.Arrived(time.Second, 5*time.Second) }
	r.Row("dependency broken for 4 s: errors", replay.AtLeast(sick(oldLog).Total(replay.Failed), 60), replay.Is(sick(nowLog).Total(replay.Failed), 0))
	r.Row("  answers of the fallback", replay.None, replay.AtLeast(sick(nowLog).Total(replay.Degraded), 60))
	r.Row("  % of all errors with the same kind of body", replay.Seen(100*oldProblems/oldBodies), replay.Is(100*problems/bodies, 100))
}

const length = 15

// overload: 200 questions a second of as many users, where 50 can be answered.
func overload(w *replay.World, r *replay.Result) {
	old := w.OverHTTP(newBefore(newDependency(well)))
	now := instance(w, afterYAML, newStore(), newDependency(well))
	play := func(h http.Handler) (log *replay.Log, busy *replay.Gauge) {
		log, busy = replay.NewLog(), replay.NewGauge()
		question := func(i int) {
			arrived := time.Now()
			busy.Add(1)
			answer := get(h, "user "+strconv.Itoa(i))
			busy.Add(-1)
			log.Add(what(answer), arrived)
		}
		replay.Together(
			func() {
				replay.Traffic{Every: replay.PerSecond(30), From: 100 * time.Microsecond, Length: length*time.Second - time.Second}.Offer(question)
			},
			func() {
				replay.Traffic{Every: replay.PerSecond(170), From: 2*time.Second + 30*time.Microsecond, Length: 8 * time.Second}.Offer(func(i int) { question(10_000 + i) })
			},
		)
		return log, busy
	}
	var oldLog, nowLog *replay.Log
	var oldBusy, nowBusy *replay.Gauge
	replay.Together(func() { oldLog, oldBusy = play(old) }, func() { nowLog, nowBusy = play(now) })
	late := func(l *replay.Log) *replay.Log { return l.Arrived(5*time.Second, 10*time.Second) }
	r.Row("200/s where 50/s can be answered: answered, from the 4th second", replay.Is(late(oldLog).Total(replay.Served), 0), replay.AtLeast(late(nowLog).Total(replay.Served), 200))
	r.Row("  p99 of the answers, times that before", replay.None, replay.Near(replay.Ratio(late(nowLog).Quantile(0.99, replay.Served), nowLog.From(0, 2*time.Second).Quantile(0.99, replay.Served)), 1, 0.05))
	r.Row("  p99 of all that comes back", replay.AtLeast(late(oldLog).Quantile(0.99), 3*time.Second), replay.AtMost(late(nowLog).Quantile(0.99), 250*time.Millisecond))
	lines := func(l *replay.Log) []replay.Line {
		return []replay.Line{l.Counts("answers", length, replay.Served), l.Counts("fallback", length, replay.Degraded)}
	}
	latency := func(l *replay.Log) []replay.Line {
		return []replay.Line{l.Latency("p99", length, 0.99), l.Latency("p50", length, 0.5)}
	}
	lost := func(l *replay.Log) []replay.Line {
		return []replay.Line{l.Counts("refused", length, replay.Refused), l.Counts("failed", length, replay.Failed)}
	}
	r.Charts = []replay.Chart{
		{Title: "answered", Unit: "per second", Before: lines(oldLog), After: lines(nowLog)},
		{Title: "latency", Unit: "ms", Before: latency(oldLog), After: latency(nowLog)},
		{Title: "refused and failed", Unit: "per second", Before: lost(oldLog), After: lost(nowLog)},
		{Title: "requests at a time", Unit: "most in a second", Before: []replay.Line{oldBusy.Line("requests", length)}, After: []replay.Line{nowBusy.Line("requests", length)}},
	}
}
