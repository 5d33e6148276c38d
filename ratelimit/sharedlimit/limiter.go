package sharedlimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Limiter is a live limit that processes share. Use the New of a package that knows a
// store, or [New]. It is at once a [policy.Policy], a [policy.Gate] and a
// [ratelimit.Limiter]. All methods are safe for concurrent use. Close it when it is not in
// a pipeline: a pipeline does so when it is closed.
//
// # Who decides
//
// The store decides, in one round trip for each call, or for many calls where tokens are
// taken ahead (LeaseFor). A call waits for it for no longer than Timeout. When the answer
// is an error, or late, the stand-in decides. After a few errors in a row no call asks the
// store any more until a probe in the background was answered: that is the mode of the
// limiter, and each change of it is an event.
//
// # Refunds
//
// A token that is given back makes no trip. This process keeps it for its next call with
// the same key, for as long as it matters that it was taken: until the bucket would have
// been full again in any case, or the window has ended.
type Limiter struct {
	ratelimit.Outside

	kind, name string
	start      time.Time
	s          Settings // effective
	store      Store
	census     Census // nil when nothing is to be counted
	counting   atomic.Bool
	limits     []part
	most       atomic.Int64 // the largest cost there can be, the burst of limits[mostOf]
	mostOf     int
	keyed      bool
	table      *table

	guard   *breaker.Breaker
	away    atomic.Bool  // the store is not asked
	changed atomic.Int64 // when the mode changed
	warmup  atomic.Int64 // the time until which the store is told how many tokens there can be
	events  policy.Subscribers
	nodes   atomic.Int64

	trips, failed, hits, stoodIn atomic.Uint64
	latency                      hist.Histogram
	waiting                      atomic.Int64

	closed atomic.Bool
	ctx    context.Context //nolint:containedctx // of what runs in the background, until Close
	cancel context.CancelFunc

	mu       sync.Mutex // guards what follows
	stopped  bool
	running  sync.WaitGroup // what runs in the background
	probes   *time.Timer
	sweeper  *time.Timer
	sweeping bool
}

// part is one of the limits.
type part struct {
	Limit

	now              atomic.Pointer[figures]
	local            *ratelimit.Buckets
	share            atomic.Int64 // the burst of local
	limited, exceeds error
	refused          [policy.NumReasons]atomic.Uint64
}

// figures are what a limit is now.
type figures struct {
	rate  ratelimit.Rate
	burst int
}

var (
	_ ratelimit.Limiter  = (*Limiter)(nil)
	_ policy.Emitter     = (*Limiter)(nil)
	_ policy.Closer      = (*Limiter)(nil)
	_ policy.Snapshotter = (*Limiter)(nil)
)

const (
	// probeEvery is the time between two probes of a store that is away.
	probeEvery = 250 * time.Millisecond

	errorsInARow = 5
)

// New returns a live limit of the given kind and instance name, whose counts the store
// keeps. A store that is a [policy.Closer] is closed with it. The error joins every fault
// as a [*policy.ConfigError].
func New(kind, name string, store Store, limits []Limit, s Settings) (*Limiter, error) {
	errs := []error{s.Validate(kind, "")}
	if store == nil {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Store", Want: "want a store"})
	}
	if len(limits) == 0 {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Limits", Want: "want at least one limit"})
	}
	l := &Limiter{kind: kind, name: name, start: time.Now(), store: store, limits: make([]part, len(limits))}
	most := maxTokens
	for i := range limits {
		errs = append(errs, l.limits[i].init(kind, fmt.Sprintf("Limits[%d].", i), limits[i], len(limits) > 1, s)...)
		if m := limits[i].most(); m < most {
			most, l.mostOf = m, i
		}
		l.keyed = l.keyed || limits[i].KeyOf != nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if name == "" {
		l.name = kind
	}
	l.most.Store(int64(most))
	l.s = s.withDefaults(most)
	l.table = newTable(l.s.MaxKeys)
	l.setNodes(max(l.s.Nodes, 1))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	guard, err := breaker.New(l.name, breaker.Config{
		ConsecutiveFailures: errorsInARow,
		FailureRatio:        0.25,
		Window:              time.Second,
		MinCalls:            20,
		OpenFor:             probeEvery,
		Probes:              1,
		OnStateChange:       l.guardChanged,
	})
	if err != nil {
		return nil, err
	}
	l.guard = guard
	if c, ok := store.(Census); ok && l.s.Nodes == 0 {
		l.census = c
	}
	return l, nil
}

func (p *part) init(kind, prefix string, limit Limit, several bool, s Settings) (errs []error) {
	p.Limit = limit
	p.now.Store(&figures{limit.Rate, limit.Burst})
	if limit.Burst < 1 || limit.Burst > maxTokens {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: prefix + "Burst", Value: limit.Burst, Want: fmt.Sprintf("want 1 to %d", maxTokens)})
		return errs
	}
	keys := s.MaxKeys
	if keys == 0 {
		keys = defaultMaxKeys
	}
	local, err := ratelimit.NewKeyed(limit.Name, ratelimit.Keyed{Rate: limit.Rate, Burst: limit.Burst, MaxKeys: max(10*keys, 1)})
	if err != nil {
		for _, err := range flat(err) {
			if fault, ok := errors.AsType[*policy.ConfigError](err); ok {
				errs = append(errs, &policy.ConfigError{Policy: kind, Field: prefix + fault.Field, Value: fault.Value, Want: fault.Want})
			} else {
				errs = append(errs, err)
			}
		}
		return errs
	}
	p.local = local
	p.limited, p.exceeds = ratelimit.ErrLimited, ratelimit.ErrExceedsBurst
	if several {
		p.limited = &ratelimit.PartError{Part: limit.Name, Err: ratelimit.ErrLimited}
		p.exceeds = &ratelimit.PartError{Part: limit.Name, Err: ratelimit.ErrExceedsBurst}
	}
	return nil
}

func flat(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func (l *Limiter) at(t time.Time) int64 { return int64(t.Sub(l.start)) }
func (l *Limiter) now() int64           { return int64(time.Since(l.start)) }

// ticket says what was taken for a call: whether it can be given back, and until when that
// is worth anything.
type ticket struct {
	e     *entry
	until int64
}

// tookNothing in place of a time says that the stand-in let the call in. What is below it
// stands for tokens of the local share, and for when they were taken.
const tookNothing = -1

func shareTicket(e *entry, at int64) ticket { return ticket{e, tookNothing - 1 - max(at, 0)} }

// sharedAt returns when tokens of the local share were taken, if they were.
func (t ticket) sharedAt() (at int64, ok bool) {
	return tookNothing - 1 - t.until, t.until < tookNothing
}

// entry returns what is remembered of calls like this one.
func (l *Limiter) entry(ctx context.Context, c *policy.Call) *entry {
	if !l.keyed {
		if e := l.table.find(""); e != nil {
			return e
		}
		return l.table.add("", make([]string, len(l.limits)))
	}
	if len(l.limits) == 1 {
		key := l.limits[0].KeyOf(ctx, c)
		if e := l.table.find(key); e != nil {
			return e
		}
		return l.table.add(key, []string{key})
	}
	keys := make([]string, len(l.limits))
	var id strings.Builder
	for i := range l.limits {
		if of := l.limits[i].KeyOf; of != nil {
			keys[i] = of(ctx, c)
		}
		fmt.Fprintf(&id, "%d:%s", len(keys[i]), keys[i])
	}
	if e := l.table.find(id.String()); e != nil {
		return e
	}
	return l.table.add(id.String(), keys)
}

// take takes n tokens for a call, or returns why not: a [*policy.RejectedError], or the
// error of ctx.
func (l *Limiter) take(ctx context.Context, c *policy.Call, at int64, n int) (ticket, error) {
	switch {
	case n <= 0:
		return ticket{until: tookNothing}, nil
	case int64(n) > l.most.Load():
		return ticket{}, l.refusal(policy.ReasonCost, l.mostOf, policy.Never)
	case l.closed.Load():
		return ticket{}, &policy.RejectedError{Policy: l.name, Reason: policy.ReasonClosed, Err: policy.ErrClosed}
	}
	if l.census != nil && !l.counting.Load() {
		l.startCounting() //nolint:contextcheck // it outlives the call
	}
	e := l.entry(ctx, c)
	switch {
	case l.away.Load() || l.s.LocalOnly:
		return l.standIn(e, at, n)
	case l.s.LeaseFor > 0:
		return l.takeLeased(ctx, e, at, n)
	}
	if until, ok := e.spendCredit(at, n); ok {
		l.hits.Add(1)
		return ticket{e, until}, nil
	}
	g, sent, err := l.ask(ctx, e, n, n)
	switch {
	case err != nil && ctx.Err() != nil:
		return ticket{}, contextError(ctx)
	case err != nil:
		return l.standIn(e, l.now(), n)
	case g.Tokens < n:
		return ticket{}, l.refusal(policy.ReasonRate, g.Limit, g.RetryAfter)
	}
	until := sent + int64(g.Expires)
	e.mu.Lock()
	e.granted(sent, until)
	e.mu.Unlock()
	return ticket{e, until}, nil
}

// spendCredit takes n tokens from what was given back.
func (e *entry) spendCredit(now int64, n int) (until int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credit.drop(now)
	if e.credit.n < n {
		return 0, false
	}
	e.credit.n -= n
	return e.credit.until, true
}

// refusal is the error for a limit that refuses.
func (l *Limiter) refusal(reason policy.Reason, limit int, retryAfter time.Duration) *policy.RejectedError {
	p := &l.limits[limit]
	p.refused[reason].Add(1)
	err := p.limited
	switch reason {
	case policy.ReasonCost:
		err = p.exceeds
	case policy.ReasonUnavailable:
		err = ratelimit.ErrUnavailable
	default:
	}
	return &policy.RejectedError{Policy: l.name, Reason: reason, RetryAfter: retryAfter, Err: err}
}

// errAway says that the store is not asked. It does not leave the package.
var errAway = errors.New("sharedlimit: the store is away")

// ask asks the store, for no longer than Timeout. It says when the question was sent.
func (l *Limiter) ask(ctx context.Context, e *entry, want, least int) (g Grant, sent int64, err error) {
	permit, err := l.guard.Acquire()
	if err != nil {
		return Grant{}, 0, errAway
	}
	kind := policy.Failure // also should the store panic
	defer func() { permit.Done(kind) }()
	tctx, cancel := context.WithTimeout(ctx, l.s.Timeout)
	defer cancel()
	sent = l.now()
	l.trips.Add(1)
	g, err = l.store.Take(tctx, &Request{Keys: e.keys, Want: want, Least: least, Caps: l.caps(e, sent)})
	took := time.Duration(l.now() - sent)
	kind = l.told(ctx, took, err)
	return g, sent, err
}

// told counts an answer of the store.
func (l *Limiter) told(ctx context.Context, took time.Duration, err error) policy.Kind {
	switch {
	case err == nil:
		l.latency.Record(took)
		return policy.Success
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && took < l.s.Timeout/10:
		return policy.Canceled // the caller left; that its deadline was near says nothing of the store
	}
	l.failed.Add(1)
	return policy.Failure
}

// standIn decides without the store.
func (l *Limiter) standIn(e *entry, at int64, n int) (ticket, error) {
	if !l.s.LocalOnly {
		l.stoodIn.Add(1)
	}
	switch l.s.StandIn {
	case LetIn:
		return ticket{e, tookNothing}, nil
	case Refuse:
		return ticket{}, l.refusal(policy.ReasonUnavailable, 0, 0)
	default:
	}
	now := l.start.Add(time.Duration(at))
	for i := range l.limits {
		retryAfter, ok := l.limits[i].local.Take(now, e.keys[i], n)
		if ok {
			continue
		}
		for j := range i {
			l.limits[j].local.Refund(now, e.keys[j], n)
		}
		if retryAfter == policy.Never {
			retryAfter = 0 // more than the share, but not than the limit
		}
		return ticket{}, l.refusal(policy.ReasonRate, i, retryAfter)
	}
	return shareTicket(e, at), nil
}

// giveBack gives back n tokens.
func (l *Limiter) giveBack(t ticket, n int) {
	if n <= 0 || t.e == nil || t.until == tookNothing {
		return
	}
	if at, ok := t.sharedAt(); ok {
		for i := range l.limits {
			l.limits[i].local.Refund(l.start.Add(time.Duration(at)), t.e.keys[i], n)
		}
		return
	}
	now := l.now()
	if t.until <= now {
		return
	}
	e := l.table.add(t.e.id, t.e.keys) // it may have been forgotten
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credit.drop(now)
	if e.credit.n > 0 {
		t.until = min(t.until, e.credit.until)
	}
	e.credit = hold{min(e.credit.n+n, int(l.most.Load())), t.until}
}

// caps returns the most tokens that the limits may have, after a time in which the store
// was away: as many as all shares together, if each is like this one. Shares fill as fast
// as the limit, so this does not bind any more once it was applied.
func (l *Limiter) caps(e *entry, at int64) []int {
	if at >= l.warmup.Load() {
		return nil
	}
	now := l.start.Add(time.Duration(at))
	caps := make([]int, len(l.limits))
	for i := range l.limits {
		p := &l.limits[i]
		tokens, share := p.local.Tokens(now, e.keys[i]), float64(p.share.Load())
		if caps[i] = -1; tokens < share {
			caps[i] = int(max(tokens, 0) / share * float64(p.now.Load().burst))
		}
	}
	return caps
}

// setNodes says among how many processes the limits are divided.
func (l *Limiter) setNodes(n int) {
	if int64(n) != l.nodes.Swap(int64(n)) {
		l.share()
	}
}

// share divides the limits.
func (l *Limiter) share() {
	n := max(int(l.nodes.Load()), 1)
	for i := range l.limits {
		p := &l.limits[i]
		f := p.now.Load()
		rate, share := f.rate, max(f.burst/n, 1)
		rate.Tokens /= float64(n)
		if p.local.SetLimit(rate, share) == nil { // both are valid
			p.share.Store(int64(share))
		}
	}
}

// fill returns how long it takes until all limits are full again.
func (l *Limiter) fill() time.Duration {
	longest := 0.0
	for i := range l.limits {
		f := l.limits[i].now.Load()
		longest = max(longest, float64(f.burst)/f.rate.Tokens*float64(f.rate.Per))
	}
	return time.Duration(min(longest, float64(math.MaxInt64/4)))
}

// contextError returns the error of a context that is done, matching its cause too.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
