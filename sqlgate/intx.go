package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// InTx runs fn within a transaction and commits it; when fn returns an error, panics or ends
// its goroutine, the transaction is rolled back. All of it, from the wait for a connection to
// the end of Commit, is one attempt, and the attempt's timeout bounds the whole. Its duration
// is the time in which the database was at work: what fn does between the statements is not
// the database's.
//
// With a retry policy in the pipeline the transaction is tried again, from its beginning,
// when nothing of it remains: after a serialization failure or a deadlock (40001, 40P01; 1213
// and 1205 of MySQL), and after a failure before Commit was sent. So fn must be ready to run
// more than once: it begins with nothing it has learned in an earlier attempt, and does
// nothing that a rollback does not undo. When the connection is lost while Commit runs, nobody
// knows; the transaction is tried again then only if the call says that it may happen twice
// (policy.Call.Idempotent).
//
// fn must use the context and the Tx that it is given, and leave Commit and Rollback to InTx.
// An error of fn that is not the database's is permanent, and returned as it is.
func InTx(ctx context.Context, db *DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *Tx) error) error {
	c := db.gate.NewCall(ctx, "", false, false)
	_, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), transaction{db: db, call: &c, opts: opts, fn: fn}, txAttempt, nil)
	return err
}

type transaction struct {
	db   *DB
	call *core.Call
	opts *sql.TxOptions
	fn   func(context.Context, *Tx) error
}

func txAttempt(ctx context.Context, t transaction, at *policy.Attempt) (struct{}, error) {
	gate := t.db.gate
	if err := gate.Take(ctx, at); err != nil {
		return struct{}{}, err
	}
	defer gate.Give()
	s := &core.Session{Gate: gate, Ctx: ctx}
	began := time.Now()
	sent, err := t.run(ctx, s)
	s.Ended(ctx, t.call, at, began, sent, err)
	return struct{}{}, err
}

// run makes one attempt; sent says that it came to Commit.
func (t transaction) run(ctx context.Context, s *core.Session) (sent bool, err error) {
	began := time.Now()
	tx, err := t.db.db.BeginTx(ctx, t.opts)
	s.Done(ctx, began, err)
	if err != nil {
		return false, err
	}
	wrapped := &Tx{tx: tx, db: t.db, session: s}
	returned := false
	defer func() {
		if !returned {
			_ = tx.Rollback()
		}
	}()
	err = t.fn(ctx, wrapped)
	returned = true
	began = time.Now()
	if err != nil {
		rollback := tx.Rollback()
		s.Done(ctx, began, nil)
		if rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
			s.Note(rollback)
		}
		return false, err
	}
	err = tx.Commit()
	s.Done(ctx, began, err)
	return true, err
}
