package pgxgate

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// HookConfig configures [NewHook]. The zero value is valid.
type HookConfig struct {
	// Name is the name of the pool among the policies of the pipeline. Empty means
	// "connections".
	Name string

	// Classify judges an error, as that of sqlgate.Config does. Nil judges nothing.
	Classify func(err error) policy.Kind
}

// Hook guards a [pgxpool.Pool] from within, for programs that need one as it is. It is made by
// [NewHook].
type Hook struct {
	p     *policy.Pipeline
	cfg   HookConfig
	judge core.Judge
	size  int
	at    *policy.Attachment

	out, most, waiting, mostWaiting atomic.Int64
	waits, took                     hist.Histogram
}

// NewHook puts p into the pools that are made of pc from then on, by its PrepareConn and its
// Tracer; what is there already is called as before. One config is for one pool.
//
// Each time that a connection is out of the pool is an attempt, with all that is done on it:
// the permit is held from PrepareConn until the connection is released. It ends with the
// outcome of the first statement, and is corrected by what follows, as a transaction of [Pool]
// is. A pool that cannot get a connection counts as failed.
//
// What it cannot do, compared with [Wrap], because pgxpool asks its hooks when there is a
// connection:
//
//   - the wait for a connection is measured, and slow to the breaker, but not bounded, except
//     by the context: who would be refused has waited, too
//   - nothing is tried again, and no fallback answers: the pipeline's retry, hedge, timeouts and
//     fallback have no effect
//   - a gate that waits keeps a connection out of the pool meanwhile, so gates should not
//   - a statement ends for a tracer when its rows are closed, so the program's own time in
//     between is the database's
//   - a connection that is hijacked keeps its permit for ever: nobody is told of its end
//
// The error joins invalid settings, each a [*policy.ConfigError].
func NewHook(pc *pgxpool.Config, p *policy.Pipeline, cfg HookConfig) (*Hook, error) {
	if p.Detaches(policy.Call{}) {
		return nil, &policy.ConfigError{
			Dependency: p.Name(), Policy: "pool", Field: "policies",
			Want: "a connection cannot be used on a pool of workers; use a semaphore, or Wrap",
		}
	}
	if cfg.Name == "" {
		cfg.Name = "connections"
	}
	h := &Hook{p: p, cfg: cfg, judge: core.Judge{Pipeline: p, Classify: classify(cfg.Classify)}, size: int(pc.MaxConns)}
	at, err := p.Attach(h)
	if err != nil {
		return nil, err
	}
	h.at = at
	prepare, before := pc.PrepareConn, pc.BeforeAcquire //nolint:staticcheck // deprecated, and set by some
	pc.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) {
		switch {
		case prepare != nil:
			if ok, err := prepare(ctx, c); !ok || err != nil {
				return ok, err
			}
		case before != nil && !before(ctx, c):
			return false, nil
		}
		return true, h.enter(ctx, c)
	}
	if own := pc.ConnConfig.Tracer; own != nil {
		pc.ConnConfig.Tracer = multitracer.New(own, (*tracer)(h))
	} else {
		pc.ConnConfig.Tracer = (*tracer)(h)
	}
	return h, nil
}

// Close takes the pool out of the snapshots of the pipeline. The hooks stay.
func (h *Hook) Close() { h.at.Detach() }

// Snapshot returns the state of the pool, as the pipeline's snapshot has it: connections that
// are out, those who wait, how long the waits were (Wait; here of all, also those that found a
// connection at once) and how long the statements took without them (Run).
func (h *Hook) Snapshot(time.Time) policy.PolicySnapshot {
	b := &policy.BulkheadSnapshot{
		InFlight: int(h.out.Load()), HighWater: int(h.most.Load()), Limit: h.size,
		Waiting: int(h.waiting.Load()), MostWaiting: int(h.mostWaiting.Load()), MaxWaiters: math.MaxInt32, // nobody bounds them
		Wait: policy.Latency{Counts: make([]uint64, hist.Buckets)},
		Run:  policy.Latency{Counts: make([]uint64, hist.Buckets)},
	}
	b.Wait.Sum = h.waits.AddTo(b.Wait.Counts)
	b.Run.Sum = h.took.AddTo(b.Run.Counts)
	return policy.PolicySnapshot{Name: h.cfg.Name, Kind: "connections", Waits: true, Bulkhead: b}
}

func raise(most *atomic.Int64, n int64) {
	for {
		old := most.Load()
		if n <= old || most.CompareAndSwap(old, n) {
			return
		}
	}
}

type (
	acquireKey struct{}
	beganKey   struct{}
)

// acquisition is somebody's asking for a connection.
type acquisition struct {
	began time.Time
	asked bool // the gates have been
}

// visit is a connection that is out; it is used by one goroutine at a time.
type visit struct {
	handle  policy.Handle
	wait    time.Duration
	settled bool
}

const visitKey = "breakwater"

func visitOf(c *pgx.Conn) *visit {
	v, _ := c.PgConn().CustomData()[visitKey].(*visit)
	return v
}

// enter asks the gates for a connection that is there.
func (h *Hook) enter(ctx context.Context, c *pgx.Conn) error {
	v := new(visit)
	a, _ := ctx.Value(acquireKey{}).(*acquisition)
	if a != nil {
		a.asked = true
		v.wait = time.Since(a.began)
	}
	handle, err := h.p.Enter(ctx)
	if err != nil {
		return err
	}
	v.handle = handle
	raise(&h.most, h.out.Add(1))
	c.PgConn().CustomData()[visitKey] = v
	return nil
}

// done takes notice of something that was done on a connection.
func (h *Hook) done(ctx context.Context, c *pgx.Conn, err error) {
	v := visitOf(c)
	began, ok := ctx.Value(beganKey{}).(time.Time)
	if v == nil || !ok {
		return // nobody has acquired it: the pool's own ping
	}
	d := time.Since(began)
	h.took.Record(d)
	kind, pushback := h.judge.Of(ctx, err)
	if !v.settled {
		v.settled = true
		v.handle.Settle(kind, pushback)
		v.handle.Prolong(v.wait + d)
		return
	}
	if kind.IsFailure() {
		v.handle.Amend(kind)
		return
	}
	v.handle.Prolong(d)
}

// failed counts an acquisition that got no connection.
func (h *Hook) failed(ctx context.Context, wait time.Duration, err error) {
	handle, refused := h.p.Enter(context.WithoutCancel(ctx)) // it may have ended by its deadline
	if refused != nil {
		return
	}
	defer handle.Release()
	kind, pushback := h.judge.Of(ctx, err)
	handle.Settle(kind, pushback)
	handle.Prolong(wait)
}

// tracer is the hook as pgx's tracers. It is apart so that a Hook has no methods for them.
type tracer Hook

func (t *tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	raise(&t.mostWaiting, t.waiting.Add(1))
	return context.WithValue(ctx, acquireKey{}, &acquisition{began: time.Now()})
}

func (t *tracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	t.waiting.Add(-1)
	a, ok := ctx.Value(acquireKey{}).(*acquisition)
	if !ok {
		return
	}
	wait := time.Since(a.began)
	t.waits.Record(wait)
	if data.Err != nil && !a.asked {
		(*Hook)(t).failed(ctx, wait, data.Err)
	}
}

func (t *tracer) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	v := visitOf(data.Conn)
	if v == nil {
		return
	}
	delete(data.Conn.PgConn().CustomData(), visitKey)
	t.out.Add(-1)
	if !v.settled {
		v.handle.Leave(errAside)
	}
	v.handle.Release()
}

// errAside ends an attempt in which the database was not asked: nobody counts it, and what it
// took is given back.
var errAside = &policy.RejectedError{}

func start(ctx context.Context) context.Context {
	return context.WithValue(ctx, beganKey{}, time.Now())
}

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return start(ctx)
}

func (t *tracer) TraceQueryEnd(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryEndData) {
	err := data.Err
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	(*Hook)(t).done(ctx, c, err)
}

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return start(ctx)
}

func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t *tracer) TraceBatchEnd(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchEndData) {
	(*Hook)(t).done(ctx, c, data.Err)
}

func (t *tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return start(ctx)
}

func (t *tracer) TraceCopyFromEnd(ctx context.Context, c *pgx.Conn, data pgx.TraceCopyFromEndData) {
	(*Hook)(t).done(ctx, c, data.Err)
}
