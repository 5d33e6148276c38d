package sqlgate

import (
	"context"
	"database/sql"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// DB guards a [sql.DB]. It is made by [Wrap] and safe for concurrent use.
//
// The errors of its methods are those of [policy.Do]: a [*policy.RejectedError] when a policy
// refused the call or no connection came free (nothing was run), the error of the database, a
// [*policy.GaveUpError] around it, or the context's error.
type DB struct {
	db   *sql.DB
	gate *core.Gate
	cfg  Config
}

// Wrap puts p and a bound in front of db. A nil p leaves only the bound. The pool's size
// should be set before, and db be used through the result only: a connection that is taken
// past it makes another call wait where nobody sees it, though within the time of its
// attempt.
//
// The error joins invalid settings, each a [*policy.ConfigError].
func Wrap(db *sql.DB, p *policy.Pipeline, cfg Config) (*DB, error) {
	gate, err := core.New(p, cfg.core(p), db.Stats().MaxOpenConnections)
	if err != nil {
		return nil, err
	}
	return &DB{db: db, gate: gate, cfg: cfg}, nil
}

// Config returns the effective settings.
func (db *DB) Config() Config {
	c := db.gate.Config()
	cfg := db.cfg
	cfg.Name, cfg.MaxConns, cfg.MaxWait, cfg.MaxWaiters = c.Name, c.MaxConns, c.MaxWait, c.MaxWaiters
	return cfg
}

// Unwrap returns the [sql.DB] inside, for its settings and for what is not to be guarded.
func (db *DB) Unwrap() *sql.DB { return db.db }

// Stats returns the statistics of the pool. Its WaitCount stays 0 as long as nobody goes past
// the DB: who waits, does so in front of the pool. That wait is in [DB.Snapshot].
func (db *DB) Stats() sql.DBStats { return db.db.Stats() }

// Snapshot returns the state of the bound in front of the pool, as the pipeline's snapshot
// has it: connections that are out, those who wait, how long the waits were (Wait) and how
// long the statements took without them (Run).
func (db *DB) Snapshot(now time.Time) policy.PolicySnapshot { return db.gate.Snapshot(now) }

// SetMaxOpenConns changes the size of the pool and the bound in front of it alike. n must be
// at least 1, otherwise the error is a [*policy.ConfigError] and nothing has changed.
func (db *DB) SetMaxOpenConns(n int) error {
	if err := db.gate.SetMaxConns(n); err != nil {
		return err
	}
	db.db.SetMaxOpenConns(n)
	return nil
}

// Close closes the [sql.DB], and takes the pool out of the snapshots of the pipeline, which
// goes on.
func (db *DB) Close() error {
	db.gate.Close()
	return db.db.Close()
}

// PingContext asks the database for a sign of life. It may be tried again.
func (db *DB) PingContext(ctx context.Context) error {
	c := db.gate.NewCall(ctx, "", true, false)
	_, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), op{db: db, call: &c}, pingAttempt, nil)
	return err
}

// ExecContext runs a statement that returns no rows.
func (db *DB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return db.exec(ctx, op{db: db, text: query, args: args})
}

// QueryContext runs a statement that returns rows. The permit and the connection are held until
// they have been read to their end or closed, or ctx ends: use defer rows.Close(). The call is
// a success when the first row is there; a failure that follows corrects that. The attempt's
// timeout ends there too.
func (db *DB) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	return db.query(ctx, op{db: db, text: query, args: args})
}

// QueryRowContext runs a statement that returns at most one row. The permit and the connection
// are held until [Row.Scan], which has the error, too.
func (db *DB) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return newRow(db.QueryContext(ctx, query, args...))
}

// PrepareContext prepares a statement. It may be tried again.
func (db *DB) PrepareContext(ctx context.Context, query string) (*Stmt, error) {
	c := db.gate.NewCall(ctx, query, true, false)
	stmt, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), op{db: db, call: &c, text: query}, prepareAttempt, closeStmt)
	if err == nil && stmt == nil {
		err = errNoFallback
	}
	if err != nil {
		return nil, err
	}
	return &Stmt{stmt: stmt, db: db, text: query}, nil
}

// op is one operation of the caller, tried once or more.
type op struct {
	db   *DB
	call *core.Call
	stmt *sql.Stmt // in place of text
	text string
	args []any
	opts *sql.TxOptions
}

func (db *DB) exec(ctx context.Context, o op) (sql.Result, error) {
	c := db.gate.NewCall(ctx, o.text, false, true)
	o.call = &c
	res, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), o, execAttempt, nil)
	if err == nil && res == nil {
		err = errNoFallback
	}
	return res, err
}

func (db *DB) query(ctx context.Context, o op) (*Rows, error) {
	c := db.gate.NewCall(ctx, o.text, false, true)
	o.call = &c
	rows, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), o, queryAttempt, discardRows)
	if err == nil && rows == nil {
		err = errNoFallback
	}
	return rows, err
}

func pingAttempt(ctx context.Context, o op, at *policy.Attempt) (struct{}, error) {
	_, err := onConn(ctx, o, at, func(ctx context.Context, o op) (struct{}, error) {
		return struct{}{}, o.db.db.PingContext(ctx)
	})
	return struct{}{}, err
}

func execAttempt(ctx context.Context, o op, at *policy.Attempt) (sql.Result, error) {
	return onConn(ctx, o, at, func(ctx context.Context, o op) (sql.Result, error) {
		if o.stmt != nil {
			return o.stmt.ExecContext(ctx, o.args...)
		}
		return o.db.db.ExecContext(ctx, o.text, o.args...)
	})
}

func prepareAttempt(ctx context.Context, o op, at *policy.Attempt) (*sql.Stmt, error) {
	return onConn(ctx, o, at, func(ctx context.Context, o op) (*sql.Stmt, error) {
		return o.db.db.PrepareContext(ctx, o.text)
	})
}

func closeStmt(s *sql.Stmt) {
	if s != nil {
		_ = s.Close()
	}
}

// onConn runs what is done with its connection when it returns.
func onConn[T any](ctx context.Context, o op, at *policy.Attempt, run func(context.Context, op) (T, error)) (v T, err error) {
	if err = o.db.gate.Take(ctx, at); err != nil {
		return v, err
	}
	defer o.db.gate.Give()
	began := time.Now()
	v, err = run(ctx, o)
	o.db.gate.Took(time.Since(began))
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
	}
	return v, err
}

func queryAttempt(ctx context.Context, o op, at *policy.Attempt) (*Rows, error) {
	gate := o.db.gate
	if err := gate.Take(ctx, at); err != nil {
		return nil, err
	}
	held := false
	defer func() {
		if !held {
			gate.Give()
		}
	}()
	began := time.Now()
	var (
		rows *sql.Rows
		err  error
	)
	if o.stmt != nil {
		rows, err = o.stmt.QueryContext(ctx, o.args...) //nolint:sqlclosecheck // by who gets it
	} else {
		rows, err = o.db.db.QueryContext(ctx, o.text, o.args...) //nolint:sqlclosecheck // likewise
	}
	gate.Took(time.Since(began))
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
		return nil, err
	}
	held = true
	return holdRows(rows, gate.Hold(ctx, at, "rows", true, rows.Close)), nil
}
