package sqlgate

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// Tx is a transaction, see [sql.Tx]. It holds its connection and the permit of its call until
// Commit or Rollback, or until its context ends. Its statements take no permit of their own.
// They are never refused, since half a transaction is none, nor tried again, since it is over
// when one of them has failed.
//
// A query by the [DB] beside it, on the same goroutine, takes a second connection: with as
// many transactions as connections each waits for another's, until MaxWait ends that.
type Tx struct {
	tx      *sql.Tx
	db      *DB
	session *core.Session
	nested  bool // the session is another's
	cleanup runtime.Cleanup
}

// BeginTx begins a transaction. The call is a success when it has begun; a failure of one of
// its statements corrects that. The attempt's timeout ends there too. Beginning may be tried
// again. [InTx] is for a transaction that may be tried again as a whole.
func (db *DB) BeginTx(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	c := db.gate.NewCall(ctx, "", true, false)
	tx, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), op{db: db, call: &c, opts: opts}, beginAttempt, discardTx)
	if err == nil && tx == nil {
		err = errNoFallback
	}
	return tx, err
}

func beginAttempt(ctx context.Context, o op, at *policy.Attempt) (*Tx, error) {
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
	tx, err := o.db.db.BeginTx(ctx, o.opts)
	gate.Took(time.Since(began))
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
		return nil, err
	}
	held = true
	l := gate.Hold(ctx, at, "tx", true, tx.Rollback)
	t := &Tx{tx: tx, db: o.db, session: &core.Session{Gate: gate, Ctx: ctx, Lease: l}}
	t.session.Owner = t
	t.cleanup = runtime.AddCleanup(t, (*core.Lease).Abandon, l)
	return t, nil
}

func discardTx(t *Tx) {
	if t != nil {
		_ = t.Rollback()
	}
}

// Commit ends the transaction, and makes what it did last.
func (t *Tx) Commit() error {
	defer runtime.KeepAlive(t) // using is not losing
	return t.end(t.tx.Commit)
}

// Rollback ends the transaction, and undoes what it did. After Commit it returns
// [sql.ErrTxDone] and does nothing.
func (t *Tx) Rollback() error {
	defer runtime.KeepAlive(t)
	return t.end(t.tx.Rollback)
}

func (t *Tx) end(f func() error) error {
	began := time.Now()
	err := f()
	t.session.Done(t.session.Ctx, began, err)
	if t.session.Lease != nil && !t.nested {
		t.cleanup.Stop()
		t.session.Lease.End(nil)
	}
	return err
}

// ExecContext is [DB.ExecContext] within the transaction.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	res, err := t.tx.ExecContext(ctx, query, args...)
	t.session.Done(ctx, began, err)
	return res, err
}

// QueryContext is [DB.QueryContext] within the transaction.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	rows, err := t.tx.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // by who gets it
	return sessionRows(ctx, t.session, began, rows, err)
}

// QueryRowContext is [DB.QueryRowContext] within the transaction.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return newRow(t.QueryContext(ctx, query, args...))
}

// PrepareContext prepares a statement that ends with the transaction.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*Stmt, error) {
	defer runtime.KeepAlive(t)
	began := time.Now()
	s, err := t.tx.PrepareContext(ctx, query)
	t.session.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &Stmt{stmt: s, db: t.db, text: query, session: t.session}, nil
}

// StmtContext makes of a statement one that runs within the transaction.
func (t *Tx) StmtContext(ctx context.Context, s *Stmt) *Stmt {
	defer runtime.KeepAlive(t)
	return &Stmt{stmt: t.tx.StmtContext(ctx, s.stmt), db: t.db, text: s.text, session: t.session}
}

// Unwrap returns the [sql.Tx] inside. What is done with it is not seen.
func (t *Tx) Unwrap() *sql.Tx { return t.tx }
