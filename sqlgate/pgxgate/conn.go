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

// Conn is one connection, see [pgxpool.Conn]. It holds the permit of its call until Release.
// What is done with it takes no permit of its own, and is never refused or tried again. It is
// for one goroutine at a time.
type Conn struct {
	conn    *pgxpool.Conn
	session *core.Session
	cleanup runtime.Cleanup
}

// Acquire takes a connection out of the pool. Taking one may be tried again.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	c := p.gate.NewCall(ctx, "", true, false)
	conn, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c}, acquireAttempt, discardConn)
	if err == nil && conn == nil {
		err = errNoFallback
	}
	return conn, err
}

// AcquireFunc takes a connection out of the pool, calls f with it, and gives it back. The error
// is that of Acquire or of f.
func (p *Pool) AcquireFunc(ctx context.Context, f func(*Conn) error) error {
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return f(c)
}

func acquireAttempt(ctx context.Context, o op, at *policy.Attempt) (*Conn, error) {
	gate := o.pool.gate
	if err := gate.Take(ctx, at); err != nil {
		return nil, err
	}
	inner, err := o.pool.pool.Acquire(ctx)
	if err != nil {
		gate.Give()
		o.call.Unrun(ctx, at, err)
		return nil, err
	}
	// The context is for taking it only.
	l := gate.Hold(ctx, at, "conn", false, func() error { inner.Release(); return nil })
	c := &Conn{conn: inner, session: &core.Session{Gate: gate, Ctx: context.WithoutCancel(ctx), Lease: l}}
	c.session.Owner = c
	c.cleanup = runtime.AddCleanup(c, (*core.Lease).Abandon, l)
	return c, nil
}

func discardConn(c *Conn) {
	if c != nil {
		c.Release()
	}
}

// Release gives the connection back. Further calls do nothing.
func (c *Conn) Release() {
	defer runtime.KeepAlive(c) // using is not losing
	c.cleanup.Stop()
	c.conn.Release()
	c.session.Lease.End(nil)
}

// Unwrap returns the [pgxpool.Conn] inside. What is done with it is not seen.
func (c *Conn) Unwrap() *pgxpool.Conn { return c.conn }

// Conn returns the [pgx.Conn] inside. What is done with it is not seen.
func (c *Conn) Conn() *pgx.Conn { return c.conn.Conn() }

// Ping asks the database for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	defer runtime.KeepAlive(c)
	began := time.Now()
	err := c.conn.Ping(ctx)
	c.session.Done(ctx, began, err)
	return err
}

// Exec is [Pool.Exec] on the connection.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	tag, err := c.conn.Exec(ctx, sql, args...)
	c.session.Done(ctx, began, err)
	return tag, err
}

// Query is [Pool.Query] on the connection.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	defer runtime.KeepAlive(c)
	return query(ctx, c.session, c.conn, sql, args)
}

// QueryRow is [Pool.QueryRow] on the connection.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := c.Query(ctx, sql, args...) // they have the error
	return row{rows}
}

// SendBatch is [Pool.SendBatch] on the connection.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	defer runtime.KeepAlive(c)
	return &results{BatchResults: c.conn.SendBatch(ctx, b), ctx: ctx, session: c.session}
}

// CopyFrom is [Pool.CopyFrom] on the connection.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	n, err := c.conn.CopyFrom(ctx, table, columns, src)
	c.session.Done(ctx, began, err)
	return n, err
}

// Begin is [Conn.BeginTx] without options.
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction on the connection, under its permit.
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	inner, err := c.conn.BeginTx(ctx, opts)
	c.session.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &tx{inner: inner, session: c.session}, nil
}
