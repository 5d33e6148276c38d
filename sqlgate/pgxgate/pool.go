package pgxgate

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

var errNoFallback = errors.New("pgxgate: a fallback answered with nil")

// Pool guards a [pgxpool.Pool]. It is made by [Wrap] and safe for concurrent use.
//
// The errors of its methods are those of [policy.Do]: a [*policy.RejectedError] when a policy
// refused the call or no connection came free (nothing was run), the error of pgx, a
// [*policy.GaveUpError] around it, or the context's error.
type Pool struct {
	pool *pgxpool.Pool
	gate *core.Gate
	cfg  sqlgate.Config
}

// Wrap puts p and a bound in front of pool. A nil p leaves only the bound. The pool should be
// used through the result only: a connection that is taken past it makes another call wait
// where nobody sees it, though within the time of its attempt.
//
// The error joins invalid settings, each a [*policy.ConfigError].
func Wrap(pool *pgxpool.Pool, p *policy.Pipeline, cfg sqlgate.Config) (*Pool, error) {
	inner := core.Config{
		Name: cfg.Name, MaxConns: cfg.MaxConns, MaxWait: cfg.MaxWait, MaxWaiters: cfg.MaxWaiters,
		Idempotent: cfg.Idempotent, Classify: classify(cfg.Classify),
	}
	if cfg.OnAbandoned != nil {
		inner.OnAbandoned = func(what string) { cfg.OnAbandoned(sqlgate.Abandoned{Dependency: p.Name(), What: what}) }
	}
	gate, err := core.New(p, inner, int(pool.Config().MaxConns))
	if err != nil {
		return nil, err
	}
	return &Pool{pool: pool, gate: gate, cfg: cfg}, nil
}

// classify adds what pgx says by itself: a transaction that is used after its end is no fault of
// the database's, as in a deferred Rollback.
func classify(own func(error) policy.Kind) func(error) policy.Kind {
	return func(err error) policy.Kind {
		if own != nil {
			if k := own(err); k != policy.NotRun {
				return k
			}
		}
		if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) {
			return policy.Permanent
		}
		return policy.NotRun
	}
}

// Config returns the effective settings.
func (p *Pool) Config() sqlgate.Config {
	c := p.gate.Config()
	cfg := p.cfg
	cfg.Name, cfg.MaxConns, cfg.MaxWait, cfg.MaxWaiters = c.Name, c.MaxConns, c.MaxWait, c.MaxWaiters
	return cfg
}

// Unwrap returns the [pgxpool.Pool] inside, for what is not to be guarded.
func (p *Pool) Unwrap() *pgxpool.Pool { return p.pool }

// Stat returns the statistics of the pool. Its waits are those of who goes past the [Pool]: who
// does not, waits in front of it. That wait is in [Pool.Snapshot].
func (p *Pool) Stat() *pgxpool.Stat { return p.pool.Stat() }

// Snapshot returns the state of the bound in front of the pool, as the pipeline's snapshot has
// it, see [sqlgate.DB.Snapshot].
func (p *Pool) Snapshot(now time.Time) policy.PolicySnapshot { return p.gate.Snapshot(now) }

// Close closes the [pgxpool.Pool], which waits for connections that are out, and takes it out
// of the snapshots of the pipeline, which goes on.
func (p *Pool) Close() {
	p.gate.Close()
	p.pool.Close()
}

// Ping asks the database for a sign of life. It may be tried again.
func (p *Pool) Ping(ctx context.Context) error {
	c := p.gate.NewCall(ctx, "", true, false)
	_, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c}, pingAttempt, nil)
	return err
}

// Exec runs a statement, see [pgxpool.Pool.Exec].
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c := p.gate.NewCall(ctx, sql, false, true)
	return policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c, sql: sql, args: args}, execAttempt, nil)
}

// Query runs a statement that returns rows, and waits for the first, see [pgxpool.Pool.Query].
// The rows are never nil; after an error they have it, too. The permit and the connection are
// held until they have been read to their end or closed, or ctx ends. A failure that follows the
// first row corrects the success of the call. The attempt's timeout ends with that row.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c := p.gate.NewCall(ctx, sql, false, true)
	rows, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c, sql: sql, args: args}, queryAttempt, discardRows)
	if err == nil && rows == nil {
		err = errNoFallback
	}
	if err != nil {
		return failedRows{err}, err
	}
	return rows, nil
}

// QueryRow runs a statement that returns at most one row, see [pgxpool.Pool.QueryRow]. The
// permit and the connection are held until Scan, which has the error, too.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := p.Query(ctx, sql, args...) // they have the error
	return row{rows}
}

// CopyFrom copies rows into a table, see [pgxpool.Pool.CopyFrom]. It is tried again only when
// there was no connection, since the source may be read once.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	c := p.gate.NewCall(ctx, "", false, false)
	c.Again = false
	return policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c, table: table, columns: columns, src: src}, copyAttempt, nil)
}

// op is one operation of the caller, tried once or more.
type op struct {
	pool    *Pool
	call    *core.Call
	sql     string
	args    []any
	table   pgx.Identifier
	columns []string
	src     pgx.CopyFromSource
	batch   *pgx.Batch
	opts    pgx.TxOptions
}

func pingAttempt(ctx context.Context, o op, at *policy.Attempt) (struct{}, error) {
	return onConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, _ op) (struct{}, error) {
		return struct{}{}, c.Ping(ctx)
	})
}

func execAttempt(ctx context.Context, o op, at *policy.Attempt) (pgconn.CommandTag, error) {
	return onConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, o op) (pgconn.CommandTag, error) {
		return c.Exec(ctx, o.sql, o.args...)
	})
}

func copyAttempt(ctx context.Context, o op, at *policy.Attempt) (int64, error) {
	return onConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, o op) (int64, error) {
		return c.CopyFrom(ctx, o.table, o.columns, o.src)
	})
}

// onConn runs what is done with its connection when it returns.
func onConn[T any](ctx context.Context, o op, at *policy.Attempt, run func(context.Context, *pgxpool.Conn, op) (T, error)) (v T, err error) {
	gate := o.pool.gate
	if err = gate.Take(ctx, at); err != nil {
		return v, err
	}
	defer gate.Give()
	conn, err := o.pool.pool.Acquire(ctx)
	if err != nil {
		o.call.Unrun(ctx, at, err)
		return v, err
	}
	defer conn.Release()
	began := time.Now()
	v, err = run(ctx, conn, o)
	gate.Took(time.Since(began))
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
	}
	return v, err
}

// keepConn runs what goes on with its connection when it returns. held says that it does.
func keepConn[T any](ctx context.Context, o op, at *policy.Attempt, run func(context.Context, *pgxpool.Conn, op) (v T, held bool, err error)) (v T, err error) {
	gate := o.pool.gate
	if err = gate.Take(ctx, at); err != nil {
		return v, err
	}
	held := false
	defer func() {
		if !held {
			gate.Give()
		}
	}()
	conn, err := o.pool.pool.Acquire(ctx)
	if err != nil {
		o.call.Unrun(ctx, at, err)
		return v, err
	}
	defer func() {
		if !held {
			conn.Release()
		}
	}()
	began := time.Now()
	v, held, err = run(ctx, conn, o)
	gate.Took(time.Since(began))
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
	}
	return v, err
}

func queryAttempt(ctx context.Context, o op, at *policy.Attempt) (pgx.Rows, error) {
	return keepConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, o op) (pgx.Rows, bool, error) {
		r, more, err := first(c.Query(ctx, o.sql, o.args...))
		switch {
		case err != nil:
			return nil, false, err
		case !more:
			return r, false, nil // there is nothing left to be read
		}
		t := &tail{rows: r, conn: c}
		t.lease = o.pool.gate.Hold(ctx, at, "rows", true, t.shut)
		return holdRows(t, more), true, nil
	})
}

// first reads the first row. Rows without one are closed.
func first(r pgx.Rows, err error) (_ pgx.Rows, more bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	if more = r.Next(); !more {
		err = r.Err()
	}
	return r, more, err
}
