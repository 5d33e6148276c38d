package pgxgate

import (
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// Begin is [Pool.BeginTx] without options.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction, see [pgxpool.Pool.BeginTx]. It holds its connection and the
// permit of its call until Commit or Rollback. Its statements take no permit of their own, and
// are never refused or tried again. The call is a success when it has begun; a failure of one
// of its statements corrects that. Beginning may be tried again. [InTx] is for a transaction
// that may be tried again as a whole.
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	c := p.gate.NewCall(ctx, "", true, false)
	t, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c, opts: opts}, beginAttempt, discardTx)
	if err == nil && t == nil {
		err = errNoFallback
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func beginAttempt(ctx context.Context, o op, at *policy.Attempt) (*tx, error) {
	return keepConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, o op) (*tx, bool, error) {
		inner, err := c.BeginTx(ctx, o.opts)
		if err != nil {
			return nil, false, err
		}
		return holdTx(ctx, o, at, c, inner), true, nil
	})
}

// holdTx keeps the attempt and the connection until a transaction has ended.
func holdTx(ctx context.Context, o op, at *policy.Attempt, c *pgxpool.Conn, inner pgx.Tx) *tx {
	// A connection in the middle of a transaction is closed by its pool, which rolls back.
	l := o.pool.gate.Hold(ctx, at, "tx", false, func() error { c.Release(); return nil })
	t := &tx{inner: inner, conn: c, session: &core.Session{Gate: o.pool.gate, Ctx: context.WithoutCancel(ctx), Lease: l}}
	t.session.Owner = t
	t.cleanup = runtime.AddCleanup(t, (*core.Lease).Abandon, l)
	return t
}

func discardTx(t *tx) {
	if t != nil {
		_ = t.Rollback(context.Background())
	}
}

// tx is a transaction; one within another, which is a savepoint; or one of [InTx].
type tx struct {
	inner   pgx.Tx
	conn    *pgxpool.Conn // nil when it is another's
	session *core.Session
	cleanup runtime.Cleanup
}

func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	defer runtime.KeepAlive(t) // using is not losing
	began := time.Now()
	inner, err := t.inner.Begin(ctx)
	t.session.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &tx{inner: inner, session: t.session}, nil
}

func (t *tx) Commit(ctx context.Context) error {
	defer runtime.KeepAlive(t)
	return t.end(ctx, t.inner.Commit)
}

func (t *tx) Rollback(ctx context.Context) error {
	defer runtime.KeepAlive(t)
	return t.end(ctx, t.inner.Rollback)
}

func (t *tx) end(ctx context.Context, f func(context.Context) error) error {
	began := time.Now()
	err := f(ctx)
	t.session.Done(ctx, began, err)
	if t.conn != nil {
		t.cleanup.Stop()
		t.conn.Release()
		t.conn = nil
		t.session.Lease.End(nil)
	}
	return err
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	tag, err := t.inner.Exec(ctx, sql, args...)
	t.session.Done(ctx, began, err)
	return tag, err
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	defer runtime.KeepAlive(t)
	return query(ctx, t.session, t.inner, sql, args)
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...) // they have the error
	return row{rows}
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	d, err := t.inner.Prepare(ctx, name, sql)
	t.session.Done(ctx, began, err)
	return d, err
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	n, err := t.inner.CopyFrom(ctx, table, columns, src)
	t.session.Done(ctx, began, err)
	return n, err
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	defer runtime.KeepAlive(t)
	return &results{BatchResults: t.inner.SendBatch(ctx, b), ctx: ctx, session: t.session}
}

// LargeObjects returns those of pgx: what is done with them is not seen.
func (t *tx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Conn returns that of pgx: what is done with it is not seen.
func (t *tx) Conn() *pgx.Conn { return t.inner.Conn() }

// query runs a statement under the permit of a session.
func query(ctx context.Context, s *core.Session, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, sql string, args []any,
) (pgx.Rows, error) {
	began := time.Now()
	r, more, err := first(on.Query(ctx, sql, args...))
	s.Done(ctx, began, err)
	if err != nil {
		return failedRows{err}, err
	}
	return &seen{Rows: r, ready: more, done: !more, session: s}, nil
}
