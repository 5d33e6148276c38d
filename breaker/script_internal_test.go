package breaker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// script draws the operations of a run: from rapid, from random numbers, or from the
// bytes of a fuzzer.
type script interface {
	// choose returns a number in [0, n).
	choose(label string, n int) int
}

type rapidScript struct{ t *rapid.T }

func (s rapidScript) choose(label string, n int) int { return rapid.IntRange(0, n-1).Draw(s.t, label) }

type randomScript struct{ r *rand.Rand }

func (s randomScript) choose(_ string, n int) int { return s.r.IntN(n) }

// fataler is a [testing.T] or a [rapid.T].
type fataler interface {
	Fatalf(format string, args ...any)
}

var (
	scriptKinds = []policy.Kind{
		policy.Success, policy.Failure, policy.Success, policy.Failure, policy.Timeout, policy.Busy,
		policy.Throttled, policy.Permanent, policy.Canceled, policy.NotRun,
	}
	scriptRatios = []float64{0, Off, 0.5, 0.1, 0.25, 1.0 / 3, 2.0 / 3, 0.7, 1, 0.001}
)

func scriptConfig(s script) Config {
	tenths := func(label string, least, n int) time.Duration {
		return time.Duration(least+s.choose(label, n)) * 100 * time.Millisecond
	}
	sometimes := func(label string) bool { return s.choose(label, 3) == 0 }
	cfg := Config{
		FailureRatio: scriptRatios[s.choose("failure ratio", len(scriptRatios))],
		MinCalls:     1 + s.choose("min calls", 6),
		OpenFor:      tenths("open for", 1, 20),
		Probes:       1 + s.choose("probes", 4),
		ProbeTimeout: tenths("probe timeout", 1, 20),
	}
	if sometimes("last calls") {
		cfg.LastCalls = cfg.MinCalls + s.choose("more calls", 10)
	} else {
		cfg.Window = tenths("window", 1, 40)
		cfg.Buckets = 1 + s.choose("buckets", 10)
	}
	if sometimes("count rule") {
		cfg.FailureCount = 1 + s.choose("failure count", 4)
		if cfg.LastCalls > 0 {
			cfg.FailureCount = min(cfg.FailureCount, cfg.LastCalls)
		}
	}
	if sometimes("row rule") {
		cfg.ConsecutiveFailures = 1 + s.choose("consecutive", 4)
	}
	if cfg.FailureRatio == Off && cfg.FailureCount+cfg.ConsecutiveFailures == 0 || sometimes("slow rule") {
		cfg.SlowAfter = 50 * time.Millisecond
		if cfg.FailureRatio != Off {
			cfg.SlowRatio = scriptRatios[s.choose("slow ratio", len(scriptRatios))]
		}
	}
	if sometimes("growth") {
		cfg.MaxOpenFor = cfg.OpenFor + tenths("growth", 1, 60)
		cfg.OpenGrowth = Growth(s.choose("kind of growth", 2))
		cfg.ForgetAfter = tenths("forget", 0, 30)
	}
	if sometimes("jitter") {
		cfg.OpenJitter = float64(s.choose("jitter", 10)) / 10
	}
	switch s.choose("retry after", 3) {
	case 0:
		cfg.MaxRetryAfter = Off
	case 1:
		cfg.MaxRetryAfter = cfg.OpenFor + tenths("retry after", 0, 20)
	}
	if sometimes("successes") {
		cfg.Successes = 1 + s.choose("successes", cfg.Probes)
	}
	if sometimes("ramp") {
		cfg.RampFor = cfg.Window + tenths("ramp", 1, 20)
		cfg.RampStart = float64(s.choose("ramp start", 10)) / 10
	}
	return cfg
}

// inFlight is a call that both sides have admitted.
type inFlight struct {
	word   uint64
	ticket *modelTicket
}

// run is a breaker and its model under the same operations.
type run struct {
	fataler
	script

	b            *Breaker
	m            *model
	told         []modelChange
	equal        int // so many changes have been compared
	ns           int64
	flying, done []inFlight
}

// runScript drives a breaker and its model through the same operations, and
// compares all that can be seen after each of them.
func runScript(t fataler, s script, steps int) {
	cfg := scriptConfig(s)
	r := &run{fataler: t, script: s}
	base := time.Now()
	cfg.OnStateChange = func(c StateChange) {
		r.told = append(r.told, modelChange{int64(c.Time.Sub(base)), c.StateChange})
	}
	b, err := newAt(base, "", cfg)
	if err != nil {
		t.Fatalf("%+v: %v", cfg, err)
	}
	r.b, r.m = b, newModel(cfg, b.m.seed)
	for range steps {
		r.passTime()
		r.operate()
		r.compare(r.ns)
		if ahead := s.choose("ahead", 100); ahead < 50 {
			r.compare(r.ns + int64(ahead)*int64(100*time.Millisecond))
		}
		if n := r.equal; !slices.Equal(r.told[n:], r.m.log[n:]) {
			t.Fatalf("%+v\nat %d: told of\n%+v, want\n%+v", cfg, r.ns, r.told[n:], r.m.log[n:])
		}
		r.equal = len(r.told)
	}
}

func (r *run) passTime() {
	cfg := r.m.cfg
	switch r.choose("time", 13) {
	case 0:
		r.ns += int64(cfg.OpenFor)
	case 1:
		r.ns += int64(cfg.ProbeTimeout)
	case 2:
		r.ns += int64(cfg.Window)
	case 3:
		r.ns = max(r.ns, min(r.m.until, r.ns+int64(time.Hour))) // to the end of the state
	case 4: // to an edge
		if cfg.LastCalls == 0 {
			w := int64(cfg.Window) / int64(cfg.Buckets)
			r.ns = (r.ns/w + 1) * w
		}
	case 5: // a clock that is behind
		r.ns = max(r.ns-int64(r.choose("back", 300))*int64(time.Millisecond), 0)
	case 6, 7, 8, 9:
		r.ns += int64(r.choose("step", 200)) * int64(time.Millisecond)
	}
}

func (r *run) outcome() policy.Outcome {
	o := policy.Outcome{
		Kind:     scriptKinds[r.choose("kind", len(scriptKinds))],
		Duration: time.Duration(49+r.choose("duration", 3)) * time.Millisecond,
	}
	if r.choose("wish", 4) == 0 {
		o.Pushback = time.Duration(r.choose("pushback", 60)-5) * 100 * time.Millisecond
	}
	return o
}

func (r *run) operate() {
	now := r.b.base.Add(time.Duration(r.ns))
	op := r.choose("op", 14)
	switch {
	case op <= 5 || op <= 11 && len(r.flying) == 0:
		r.begin(now)
	case op <= 11:
		i := r.choose("which", len(r.flying))
		f := r.flying[i]
		r.flying = slices.Delete(r.flying, i, i+1)
		r.recheck(now, f)
		o := r.outcome()
		if got, want := r.b.leave(f.word, uint32(i), now, o), r.m.end(f.ticket, r.ns, o); got != want {
			r.Fatalf("at %d: late %v, want %v: %+v", r.ns, got, want, o)
		}
		if o.Kind == policy.Success {
			r.done = append(r.done, f)
		}
	case op == 12 && len(r.done) > 0:
		i := r.choose("which", len(r.done))
		f := r.done[i]
		r.done = slices.Delete(r.done, i, i+1)
		o := policy.Outcome{Kind: policy.Failure, Pushback: time.Duration(r.choose("pushback", 30)) * 100 * time.Millisecond}
		r.b.amend(f.word, now, o)
		r.m.amend(f.ticket, r.ns, o)
	case op == 13 && r.choose("command", 4) == 0:
		r.command(now)
	}
}

func (r *run) begin(now time.Time) {
	word, refused := r.b.enter(now)
	ticket, reason, after := r.m.begin(r.ns)
	switch {
	case (refused == nil) != (ticket != nil):
		r.Fatalf("at %d: refused: %v, want ticket %+v, reason %v", r.ns, refused, ticket, reason)
	case refused != nil && (refused.Reason != reason || refused.RetryAfter != after):
		r.Fatalf("at %d: %v, want %v after %v", r.ns, refused, reason, after)
	case refused == nil && (word == ghost) != ticket.ghost:
		r.Fatalf("at %d: word %x, want ticket %+v", r.ns, word, ticket)
	case refused == nil:
		r.flying = append(r.flying, inFlight{word, ticket})
	}
}

// recheck asks about a call that was queued: it may run if its outcome would count, or
// if the breaker lets everything through.
func (r *run) recheck(now time.Time, f inFlight) {
	if r.choose("queued", 3) > 0 {
		return
	}
	want := r.m.state == Closed || f.ticket.ghost || !f.ticket.probe && r.m.counting() && f.ticket.gen >= r.m.first
	if !want {
		r.m.pass(r.ns)
		want = r.m.state == Closed || r.m.state == ForcedClosed || slices.Contains(r.m.flying, f.ticket) ||
			r.m.observing && r.ns < r.m.observeUntil
	}
	if got := r.b.recheck(f.word, now) == nil; got != want {
		r.Fatalf("at %d: queued call may run: %v, want %v", r.ns, got, want)
	}
}

func (r *run) command(now time.Time) {
	length := time.Duration(r.choose("length", 30)) * 100 * time.Millisecond
	switch note := []string{"a", "b", ""}[r.choose("note", 3)]; r.choose("which command", 6) {
	case 0:
		r.b.reset(now)
		r.m.reset(r.ns)
	case 1:
		r.b.force(now, ForcedOpen, note, length)
		r.m.force(ForcedOpen, r.ns, lengthOf(length), note)
	case 2:
		r.b.force(now, ForcedClosed, note, length)
		r.m.force(ForcedClosed, r.ns, lengthOf(length), note)
	case 3:
		r.b.observe(now, note, length)
		r.m.observe(r.ns, lengthOf(length), note)
	default:
		r.b.release(now, note)
		r.m.release(r.ns, note, true)
	}
}

func (r *run) compare(ns int64) {
	got := r.b.snapshot(r.b.base.Add(time.Duration(ns)))
	c := r.m.clone()
	c.pass(ns)
	f := c.figures(ns)
	want := policy.BreakerSnapshot{
		State:                c.state.String(),
		Since:                r.b.base.Add(time.Duration(c.since)),
		Generation:           c.gen,
		Why:                  c.why,
		Note:                 c.note,
		Share:                c.share(ns),
		Calls:                f.calls,
		Failures:             f.failures,
		Slow:                 f.slow,
		FailureThreshold:     max(c.cfg.FailureRatio, 0),
		SlowThreshold:        max(c.cfg.SlowRatio, 0),
		CountThreshold:       uint64(c.cfg.FailureCount),
		ConsecutiveThreshold: uint64(c.cfg.ConsecutiveFailures),
		MinCalls:             uint64(c.cfg.MinCalls),
		ProbesInFlight:       len(c.flying),
		MaxProbes:            c.cfg.Probes,
		Opened:               c.opened,
		Observing:            c.observing,
		Spared:               c.spared,
	}
	if c.counting() {
		want.Consecutive = c.failed
	}
	if f.calls > 0 {
		want.FailureRatio = float64(f.failures) / float64(f.calls)
		want.SlowRatio = float64(f.slow) / float64(f.calls)
	}
	if c.until != forever && c.state != Recovering {
		want.RetryAfter = time.Duration(c.until - ns)
	}
	if got != want {
		r.Fatalf("%+v\nat %d of %d:\n got %+v\nwant %+v", c.cfg, ns, r.ns, got, want)
	}
	if got.Failures > got.Calls || got.Slow > got.Calls || got.ProbesInFlight > got.MaxProbes {
		r.Fatalf("at %d: figures that cannot be: %+v", ns, got)
	}
}

// The breaker equals its model after every step: states, generations, figures,
// refusals, what is ignored, and the changes that are told.
func TestBreakerEqualsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		runScript(rt, rapidScript{rt}, rapid.IntRange(1, 150).Draw(rt, "steps"))
	})
}

// The same many times over, without what rapid needs to make a failure small.
func TestBreakerEqualsModelManyTimes(t *testing.T) {
	t.Parallel()
	runs, parts := uint64(10_000), uint64(4)
	if testing.Short() {
		runs = 1000
	}
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < runs; seed += parts {
				runScript(seeded{t, seed}, randomScript{rand.New(rand.NewPCG(seed, 0))}, 45)
			}
		})
	}
}

// seeded says which run failed.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("seed %d: "+format, append([]any{s.seed}, args...)...)
}
