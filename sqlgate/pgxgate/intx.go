package pgxgate

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// InTx runs fn within a transaction and commits it, as one attempt that may be repeated; see
// [sqlgate.InTx], which says what is, when, and what that asks of fn.
func InTx(ctx context.Context, p *Pool, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	c := p.gate.NewCall(ctx, "", false, false)
	_, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), transaction{pool: p, call: &c, opts: opts, fn: fn}, txAttempt, nil)
	return err
}

type transaction struct {
	pool *Pool
	call *core.Call
	opts pgx.TxOptions
	fn   func(context.Context, pgx.Tx) error
}

func txAttempt(ctx context.Context, t transaction, at *policy.Attempt) (struct{}, error) {
	gate := t.pool.gate
	if err := gate.Take(ctx, at); err != nil {
		return struct{}{}, err
	}
	defer gate.Give()
	s := &core.Session{Gate: gate, Ctx: ctx}
	conn, err := t.pool.pool.Acquire(ctx)
	if err != nil {
		t.call.Unrun(ctx, at, err)
		return struct{}{}, err
	}
	defer conn.Release() // in the middle of a transaction, it closes the connection
	began := time.Now()
	sent, err := t.run(ctx, conn, s)
	s.Ended(ctx, t.call, at, began, sent, err)
	return struct{}{}, err
}

// run makes one attempt; sent says that it came to Commit.
func (t transaction) run(ctx context.Context, conn *pgxpool.Conn, s *core.Session) (sent bool, err error) {
	began := time.Now()
	inner, err := conn.BeginTx(ctx, t.opts)
	s.Done(ctx, began, err)
	if err != nil {
		return false, err
	}
	err = t.fn(ctx, &tx{inner: inner, session: s})
	began = time.Now()
	if err != nil {
		_ = inner.Rollback(ctx) // if that fails, the connection is closed, which does it
		s.Done(ctx, began, nil)
		return false, err
	}
	err = inner.Commit(ctx)
	s.Done(ctx, began, err)
	return true, err
}
