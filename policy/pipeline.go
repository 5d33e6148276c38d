package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/breakwater-go/breakwater/internal/engine"
)

// Pipeline guards one dependency: every call to it goes through the same policies
// and shares their state, whatever it returns. All methods are safe for concurrent
// use. A nil Pipeline runs the function and nothing else.
type Pipeline struct {
	name string
	base time.Time // the clock's origin
	plan atomic.Pointer[plan]

	stats     *stats
	observers []Observer
	watchers  atomic.Pointer[[]*watch] // those that came later; nil for none, never changed in place
	tracer    Tracer
	derived   int // number among the derived ones of its registry; 0 for none

	shut        atomic.Bool
	shutRefused rejections // by a closed pipeline

	mu      sync.Mutex
	cancels []func() // subscriptions of the observers
	retired []Closer // of policies that an update has replaced
	closed  bool
	typed   map[string]*typedState // of the fallbacks of typed handles, by name

	attached []*Attachment // what is shown beside the policies
}

// plan is the immutable list of a pipeline's policies. An attempt leaves through the
// plan it entered.
type plan struct {
	gates          []planGate
	holds          uint32 // bit i is set when gate i is left at release
	refunds        uint32 // bit i is set when gate i is left by attempts that never ran only
	waits          bool   // some gate may wait or do I/O
	runner         Runner // nil for the caller's own goroutine
	runnerName     string
	runnerRejected *rejections
	retry          Retrier
	retryStats     *reactorStats
	hedge          Hedger
	hedgeStats     *hedgeStats
	hedging        *engine.Hedging
	first          firster     // told of the first attempt of each call; nil for nobody
	calls          CallWatcher // nil for nearly all
	total          time.Duration
	full           bool // every call takes the long way: a total timeout, a runner, or failsafe-go policies
	attemptTimeout time.Duration
	fallbacks      []planFallback
	mappers        []planMapper
	classifiers    []func(error) Kind
	foreign        []*engine.Foreign
	recovery       *recovery

	parts    []Part // outermost first, for snapshots
	closers  []Closer
	warnings []string
}

type planGate struct {
	gate     Gate
	name     string
	kind     string
	shadow   bool
	rejected *rejections // in this mode
	other    *rejections // in the other one, see SetShadow
}

// rejections counts refusals by reason.
type rejections [NumReasons]atomic.Uint64

func (c *rejections) count(r Reason) {
	if r >= NumReasons {
		r = ReasonUnknown
	}
	c[r].Add(1)
}

func (c *rejections) load() (counts [NumReasons]uint64) {
	for r := range c {
		counts[r] = c[r].Load()
	}
	return counts
}

type reactorStats struct {
	name    string
	stopped [NumStops]atomic.Uint64
}

// New builds the pipeline of the dependency called name. The policies may be listed
// in any order; they are sorted into the default one, outermost first: fallback,
// total timeout, retry, then for each attempt rate limit, bulkhead, breaker, attempt
// timeout. [Ordered] keeps the order of gates.
//
// The error joins everything that is wrong, each as a [*ConfigError] that reads like
// "inventory.retry.MaxAttempts: …".
func New(name string, policies ...Policy) (*Pipeline, error) {
	p := &Pipeline{name: name, base: time.Now(), stats: newStats()}
	parts, err := p.build(policies)
	pl, aerr := p.assemble(parts)
	if err = errors.Join(err, aerr); err != nil {
		discard(parts, nil)
		return nil, err
	}
	for _, part := range parts {
		switch {
		case part.Observer != nil:
			p.observers = append(p.observers, part.Observer)
		case part.Tracer != nil:
			p.tracer = part.Tracer
		case part.Derived:
			p.derived = 1 // a registry counts on
		}
	}
	p.plan.Store(pl)
	if len(p.observers) > 0 {
		p.cancels = p.subscribe(pl, p.observe)
	}
	return p, nil
}

// subscribe hands the events of the gates to fn. It returns the functions that end that.
func (p *Pipeline) subscribe(pl *plan, fn func(Event)) (cancels []func()) {
	for i := range pl.gates {
		e, ok := pl.gates[i].gate.(Emitter)
		if !ok {
			continue
		}
		name := pl.gates[i].name
		cancels = append(cancels, e.Subscribe(func(ev Event) {
			ev.Dependency, ev.Policy = p.name, name
			fn(ev)
		}))
	}
	return cancels
}

// build makes the parts of the policies, in the order in which the gates stand.
func (p *Pipeline) build(policies []Policy) ([]Part, error) {
	var errs []error
	if !isLabel(p.name) {
		errs = append(errs, &ConfigError{Field: "name", Value: fmt.Sprintf("%q", p.name), Want: labelWant})
	}
	var parts []Part
	ordered := false
	for _, pol := range policies {
		list := []Policy{pol}
		if o, ok := pol.(orderedPolicies); ok {
			ordered = true
			list = o
		}
		list = expanded(list)
		for _, pol := range list {
			if what := isNil(pol); what != "" {
				errs = append(errs, &ConfigError{Dependency: p.name, Field: "policies", Want: "a nil " + what + " is in the list"})
				continue
			}
			part, err := pol.BuildPolicy()
			if part.Name == "" {
				part.Name = part.Kind
			}
			if err != nil {
				errs = append(errs, inPipeline(err, p.name, part.Name)...)
				continue
			}
			if !isLabel(part.Name) {
				errs = append(errs, badName(p.name, part))
			}
			part.spec = specOf(pol)
			parts = append(parts, part)
		}
	}
	if !ordered {
		slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(a.Place, b.Place) })
	}
	return parts, errors.Join(errs...)
}

// isNil says what p is if it is nil, also when it is a nil pointer: a live policy whose
// constructor has failed. It returns an empty string for all others.
func isNil(p Policy) string {
	if p == nil {
		return "policy"
	}
	if v := reflect.ValueOf(p); (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
		return v.Type().String()
	}
	return ""
}

const labelWant = "want 1 to 128 bytes of printable UTF-8: it is a label of metrics and logs"

func badName(dependency string, part Part) error {
	return &ConfigError{Dependency: dependency, Policy: part.Kind, Field: "Name", Value: fmt.Sprintf("%q", part.Name), Want: labelWant}
}

// isLabel reports whether a name can be a label. Marks that turn the direction of a text
// around, and others that are not seen, would make one name look like another.
func isLabel(s string) bool {
	return s != "" && len(s) <= 128 && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// assemble checks the parts against each other and makes a plan of them.
func (p *Pipeline) assemble(parts []Part) (*plan, error) {
	pl := &plan{}
	var errs []error
	fail := func(part Part, want string) {
		errs = append(errs, &ConfigError{Dependency: p.name, Policy: part.Name, Want: want})
	}
	names := p.attachedNames()
	single := map[string]string{}
	once := func(part Part, kind string) {
		if first, dup := single[kind]; dup {
			fail(part, fmt.Sprintf("a pipeline has one %s policy, and %q is there already", kind, first))
		}
		single[kind] = part.Name
	}
	gates := 0
	var heads []fallbackHead
	for _, part := range parts {
		if part.contributions() > 1 {
			fail(part, "the policy contributes more than one thing to a pipeline")
			continue
		}
		labelled := part.Gate != nil || part.Runner != nil || part.Retry != nil || part.Hedge != nil || part.Fallback != nil || part.Timeouts != nil || part.MapError != nil
		if labelled && names[part.Name] {
			fail(part, "the name is used twice in this pipeline; set Name to tell the policies apart")
		}
		names[part.Name] = names[part.Name] || labelled
		for _, w := range part.Warnings {
			pl.warnings = append(pl.warnings, p.name+"."+part.Name+": "+w)
		}
		switch {
		case part.Gate != nil:
			gates++
			pl.waits = pl.waits || (part.Waits && !part.Shadow)
		case part.Runner != nil:
			once(part, "runner")
			pl.runner, pl.runnerName, pl.runnerRejected = part.Runner, part.Name, new(rejections)
			pl.waits = pl.waits || part.Waits
		case part.Retry != nil:
			once(part, "retry")
			pl.retry = part.Retry
			pl.retryStats = &reactorStats{name: part.Name}
		case part.Hedge != nil:
			once(part, "hedge")
			pl.hedge, pl.hedging = part.Hedge, engine.NewHedging(max(part.MaxHedges, 1))
			pl.hedgeStats = &hedgeStats{name: part.Name}
		case part.Timeouts != nil:
			once(part, "timeout")
			pl.attemptTimeout, pl.total = part.Timeouts.Attempt, part.Timeouts.Total
		case part.Observer != nil:
		case part.Tracer != nil:
			once(part, "tracer")
		case part.Classify != nil:
			pl.classifiers = append(pl.classifiers, part.Classify)
		case part.Derived:
			once(part, "derived")
		case part.Foreign != nil:
			pl.foreign = append(pl.foreign, part.Foreign)
		case part.Fallback != nil:
			head, err := headOf(p.name, part, new(fallbackCounts))
			if err != nil {
				errs = append(errs, err)
			}
			heads = append(heads, head)
		case part.Fallback == nil && part.MapError == nil:
			fail(part, "the policy contributes nothing to a pipeline")
		}
		if c, ok := closerOf(part); ok {
			pl.closers = append(pl.closers, c)
		}
	}
	if gates > MaxGates {
		errs = append(errs, &ConfigError{Dependency: p.name, Field: "policies", Value: gates, Want: fmt.Sprintf("want at most %d gates; nest two pipelines instead", MaxGates)})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, w := range misfits(parts) {
		pl.warnings = append(pl.warnings, p.name+"."+w)
	}
	pl.fill(parts, gates, heads)
	pl.recovery = newRecovery(pl)
	pl.first, pl.calls = paidOf(parts).first(), paidOf(parts).calls()
	pl.full = pl.total > 0 || len(pl.foreign) > 0 || pl.runner != nil
	return pl, nil
}

// fill places gates and fallbacks, whose counters must not move afterwards, and
// lists the parts outermost first.
func (pl *plan) fill(parts []Part, gates int, heads []fallbackHead) {
	pl.gates = make([]planGate, gates)
	pl.fallbacks = make([]planFallback, len(heads))
	pl.mappers = make([]planMapper, len(slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.MapError == nil })))
	g, f, m := 0, 0, 0
	var mappers, fallbacks, timeouts, retries, hedges, inner, runners []Part
	for _, part := range parts {
		switch {
		case part.Gate != nil:
			pg := &pl.gates[g]
			pg.gate, pg.name, pg.kind, pg.shadow = part.Gate, part.Name, part.Kind, part.Shadow
			pg.rejected, pg.other = new(rejections), new(rejections)
			if part.Holds {
				pl.holds |= 1 << g
			}
			if part.RefundsOnly {
				pl.refunds |= 1 << g
			}
			g++
			inner = append(inner, part)
		case part.Fallback != nil:
			pl.fallbacks[f] = planFallback{heads[f], part.Fallback}
			f++
			fallbacks = append(fallbacks, part)
		case part.MapError != nil:
			pl.mappers[m] = planMapper{part.Name, part.MapError, new(atomic.Uint64)}
			m++
			mappers = append(mappers, part)
		case part.Timeouts != nil:
			timeouts = append(timeouts, part)
		case part.Retry != nil:
			retries = append(retries, part)
		case part.Hedge != nil:
			hedges = append(hedges, part)
		case part.Runner != nil:
			runners = append(runners, part)
		}
	}
	pl.parts = slices.Concat(mappers, fallbacks, timeouts, retries, hedges, inner, runners)
}

// closerOf returns what the pipeline of a part has to close: nothing of what is only lent
// to it.
func closerOf(part Part) (Closer, bool) {
	if part.lent() {
		return nil, false
	}
	for _, v := range []any{part.Gate, part.Runner, part.Retry, part.Hedge, part.Fallback, part.Guard} {
		if c, ok := v.(Closer); ok {
			return c, true
		}
	}
	return nil, false
}

// classify judges the error of an attempt that ran under ctx. The caller's own
// cancellation comes first; then the pipeline's classifiers, then the default.
func (pl *plan) classify(ctx context.Context, err error) Outcome {
	if len(pl.classifiers) > 0 && !errors.Is(ctx.Err(), context.Canceled) {
		for _, f := range pl.classifiers {
			if k := f(err); k.judges() {
				return Outcome{Kind: k, Pushback: pushbackOf(err)}
			}
		}
	}
	return Classify(ctx, err)
}

// clock reads the time, with its monotonic part, at half the cost of [time.Now].
func (p *Pipeline) clock() time.Time { return p.base.Add(p.elapsed()) }

// elapsed reads the monotonic clock.
func (p *Pipeline) elapsed() time.Duration { return time.Since(p.base) }

// Name returns the dependency's name.
func (p *Pipeline) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// Warnings returns settings that work and are likely to surprise, one sentence
// each.
func (p *Pipeline) Warnings() []string {
	if p == nil {
		return nil
	}
	return slices.Clone(p.plan.Load().warnings)
}

// watched reports whether anybody is told of events.
func (p *Pipeline) watched() bool { return len(p.observers) > 0 || p.watchers.Load() != nil }

// emit hands an event to the observers and the watchers.
func (p *Pipeline) emit(e Event) {
	e.Dependency = p.name
	p.observe(e)
	if ws := p.watchers.Load(); ws != nil {
		for _, w := range *ws {
			notify(w.to.OnEvent, e)
		}
	}
}

// observe hands an event to the observers alone.
func (p *Pipeline) observe(e Event) {
	for _, o := range p.observers {
		notify(o.OnEvent, e)
	}
}

// Close makes the pipeline refuse every further attempt with [ReasonClosed], ends
// its subscriptions and closes the policies that hold something. Calls that are
// running finish under the policies they entered, and Close does not wait for them,
// except for those on a pool, which it drains until ctx ends. Further calls of Close
// do nothing.
func (p *Pipeline) Close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.shut.Store(true)
	for _, cancel := range p.cancels {
		cancel()
	}
	p.unwatchAll()
	var errs []error
	for _, c := range slices.Concat(p.retired, p.plan.Load().closers) {
		errs = append(errs, c.Close(ctx))
	}
	errs = append(errs, p.closeTyped(ctx))
	return errors.Join(errs...)
}

// Snapshot returns the state of the pipeline and of each of its policies.
func (p *Pipeline) Snapshot() Snapshot {
	if p == nil {
		return Snapshot{}
	}
	now := p.clock()
	pl := p.plan.Load()
	snap := Snapshot{Dependency: p.name, Time: time.Now(), Derived: p.derived}
	p.stats.addTo(&snap)
	snap.Policies = p.typedParts(now)
	g, f, m := 0, 0, 0
	for _, part := range pl.parts {
		ps := describe(part, now)
		ps.Name, ps.Kind, ps.Shadow, ps.Waits = part.Name, part.Kind, part.Shadow, part.Waits
		switch {
		case part.Gate != nil:
			ps.Rejected = pl.gates[g].rejected.load()
			g++
		case part.Runner != nil:
			ps.Rejected = pl.runnerRejected.load()
		case part.Fallback != nil:
			ps = withFallback(ps, &pl.fallbacks[f].fallbackHead)
			f++
		case part.MapError != nil:
			ps.Fallback = &FallbackSnapshot{Mapped: pl.mappers[m].mapped.Load()}
			m++
		case part.Timeouts != nil:
			ps.Timeouts = part.Timeouts
		case part.Retry != nil:
			if ps.Retry == nil {
				ps.Retry = &RetrySnapshot{}
			}
			for s := range NumStops {
				ps.Retry.Stopped[s] = pl.retryStats.stopped[s].Load()
			}
		case part.Hedge != nil:
			if ps.Hedge == nil {
				ps.Hedge = &HedgeSnapshot{MaxHedges: max(part.MaxHedges, 1)}
			}
			pl.hedgeStats.addTo(ps.Hedge)
		}
		snap.Policies = append(snap.Policies, ps)
	}
	snap.Policies = append(snap.Policies, p.attachedParts(now)...)
	if p.shut.Load() {
		snap.Policies = append(snap.Policies, PolicySnapshot{Name: "pipeline", Kind: "pipeline", Rejected: p.shutRefused.load()})
	}
	return snap
}

// describe asks the policy behind a part for its state.
func describe(part Part, now time.Time) PolicySnapshot {
	for _, v := range []any{part.Gate, part.Runner, part.Retry, part.Hedge, part.Fallback} {
		if s, ok := v.(Snapshotter); ok {
			return s.Snapshot(now)
		}
	}
	return PolicySnapshot{}
}

// orderedPolicies is the list of [Ordered].
type orderedPolicies []Policy

// Policies returns the list.
func (o orderedPolicies) Policies() []Policy { return o }

// BuildPolicy implements [Policy]; [New] takes the list apart instead.
func (orderedPolicies) BuildPolicy() (Part, error) {
	return Part{}, &ConfigError{Field: "policies", Want: "Ordered does not nest"}
}

// Ordered makes [New] keep the order of the gates as they are listed, outermost
// first. Fallback, timeouts and retry stay where they always are, around the gates:
// to put a gate around a retry, nest two pipelines.
func Ordered(policies ...Policy) Policy { return orderedPolicies(policies) }
