package sqlgate

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// Conn is one connection, see [sql.Conn]. It holds the permit of its call until Close. What is
// done with it takes no permit of its own, and is never refused or tried again.
type Conn struct {
	conn    *sql.Conn
	db      *DB
	session *core.Session
	cleanup runtime.Cleanup
}

// Conn takes a connection out of the pool. Taking one may be tried again.
func (db *DB) Conn(ctx context.Context) (*Conn, error) {
	c := db.gate.NewCall(ctx, "", true, false)
	conn, err := policy.DoAttempt(ctx, db.gate.Pipeline(), c.Policy(), op{db: db, call: &c}, connAttempt, discardConn)
	if err == nil && conn == nil {
		err = errNoFallback
	}
	return conn, err
}

func connAttempt(ctx context.Context, o op, at *policy.Attempt) (*Conn, error) {
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
	conn, err := o.db.db.Conn(ctx)
	at.Judging()
	if err != nil {
		o.call.Failed(ctx, at, err)
		return nil, err
	}
	held = true
	l := gate.Hold(ctx, at, "conn", false, conn.Close) // the context is for taking it only
	c := &Conn{conn: conn, db: o.db, session: &core.Session{Gate: gate, Ctx: context.Background(), Lease: l}}
	c.session.Owner = c
	c.cleanup = runtime.AddCleanup(c, (*core.Lease).Abandon, l)
	return c, nil
}

func discardConn(c *Conn) {
	if c != nil {
		_ = c.Close()
	}
}

// Close gives the connection back. Further calls return [sql.ErrConnDone].
func (c *Conn) Close() error {
	defer runtime.KeepAlive(c)
	err := c.conn.Close()
	c.cleanup.Stop()
	c.session.Lease.End(nil)
	return err
}

// PingContext asks the database for a sign of life.
func (c *Conn) PingContext(ctx context.Context) error {
	defer runtime.KeepAlive(c)
	began := time.Now()
	err := c.conn.PingContext(ctx)
	c.session.Done(ctx, began, err)
	return err
}

// ExecContext is [DB.ExecContext] on the connection.
func (c *Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	res, err := c.conn.ExecContext(ctx, query, args...)
	c.session.Done(ctx, began, err)
	return res, err
}

// QueryContext is [DB.QueryContext] on the connection.
func (c *Conn) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	rows, err := c.conn.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // by who gets it
	return sessionRows(ctx, c.session, began, rows, err)
}

// QueryRowContext is [DB.QueryRowContext] on the connection.
func (c *Conn) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return newRow(c.QueryContext(ctx, query, args...))
}

// PrepareContext prepares a statement that runs on the connection.
func (c *Conn) PrepareContext(ctx context.Context, query string) (*Stmt, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	s, err := c.conn.PrepareContext(ctx, query)
	c.session.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &Stmt{stmt: s, db: c.db, text: query, session: c.session}, nil
}

// BeginTx begins a transaction on the connection, under its permit.
func (c *Conn) BeginTx(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	defer runtime.KeepAlive(c)
	began := time.Now()
	tx, err := c.conn.BeginTx(ctx, opts)
	c.session.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &Tx{tx: tx, db: c.db, session: &core.Session{Gate: c.session.Gate, Ctx: ctx, Lease: c.session.Lease, Owner: c}, nested: true}, nil
}

// Raw runs f with the driver's connection, see [sql.Conn.Raw].
func (c *Conn) Raw(f func(driverConn any) error) error {
	defer runtime.KeepAlive(c)
	began := time.Now()
	err := c.conn.Raw(f)
	c.session.Done(c.session.Ctx, began, err)
	return err
}
