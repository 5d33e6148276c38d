package sqlgate

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// guardedConn is a connection of the driver's that knows whether it is in a transaction.
// database/sql uses it from one goroutine at a time.
type guardedConn struct {
	driver.Conn

	g    *guard
	tx   policy.Handle // of the transaction
	inTx bool
}

// run runs a statement, as an attempt or under that of the transaction.
func run[T any](ctx context.Context, c *guardedConn, f func(context.Context) (T, error)) (T, error) {
	if !c.inTx {
		return do(ctx, c.g, f)
	}
	began := time.Now()
	v, err := f(ctx)
	c.done(began, err)
	return v, err
}

// done corrects the success of the transaction, if a statement failed or was slow.
func (c *guardedConn) done(began time.Time, err error) {
	if !errors.Is(err, driver.ErrSkip) {
		c.g.amend(c.tx, err)
		c.tx.Prolong(time.Since(began))
	}
}

// query runs a statement whose rows go on with its attempt.
func (c *guardedConn) query(ctx context.Context, f func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	r, _ := ctx.Value(rowsKey{}).(*rowsOf)
	if r == nil {
		return run(ctx, c, f) // not by way of the interceptor, so nobody is told of the end
	}
	if c.inTx {
		began := time.Now()
		rows, err := f(ctx)
		c.done(began, err)
		if err == nil {
			*r = rowsOf{g: c.g, h: c.tx, shared: true}
		}
		return rows, err
	}
	h, err := c.g.enter(ctx)
	if err != nil {
		return nil, err
	}
	held := false
	defer func() {
		if !held {
			h.Release()
		}
	}()
	rows, err := f(h.Context())
	c.g.settle(h, err)
	if err != nil {
		return nil, err
	}
	held = true
	*r = rowsOf{g: c.g, h: h}
	return rows, nil
}

func (c *guardedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip // by a prepared statement, then
	}
	return c.query(ctx, func(ctx context.Context) (driver.Rows, error) { return q.QueryContext(ctx, query, args) })
}

func (c *guardedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return run(ctx, c, func(ctx context.Context) (driver.Result, error) { return e.ExecContext(ctx, query, args) })
}

func (c *guardedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := run(ctx, c, func(ctx context.Context) (driver.Stmt, error) {
		if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
			return p.PrepareContext(ctx, query)
		}
		return c.Prepare(query)
	})
	if err != nil {
		return nil, err
	}
	return &guardedStmt{Stmt: s, c: c}, nil
}

func (c *guardedConn) Ping(ctx context.Context) error {
	p, ok := c.Conn.(driver.Pinger)
	if !ok {
		return nil
	}
	_, err := run(ctx, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Ping(ctx) })
	return err
}

func (c *guardedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	h, err := c.g.enter(ctx)
	if err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			h.Release()
		}
	}()
	tx, err := c.begin(h.Context(), opts)
	c.g.settle(h, err)
	if err != nil {
		return nil, err
	}
	begun = true
	c.tx, c.inTx = h, true
	return &guardedTx{Tx: tx, c: c}, nil
}

// begin does what database/sql does for a driver that knows no options.
func (c *guardedConn) begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := c.Conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	switch {
	case opts.Isolation != 0:
		return nil, errors.New("sql: driver does not support non-default isolation level")
	case opts.ReadOnly:
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	return c.Conn.Begin() //nolint:staticcheck // there is nothing else
}

// over ends the attempt of the transaction.
func (c *guardedConn) over() {
	if c.inTx {
		c.inTx = false
		c.tx.Release()
	}
}

func (c *guardedConn) Close() error {
	defer c.over() // a connection that is lost is closed in the middle
	return c.Conn.Close()
}

func (c *guardedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *guardedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *guardedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip // database/sql does it
}

type guardedTx struct {
	driver.Tx

	c *guardedConn
}

func (t *guardedTx) Commit() error {
	defer t.c.over()
	began := time.Now()
	err := t.Tx.Commit()
	t.c.done(began, err)
	return err
}

func (t *guardedTx) Rollback() error {
	defer t.c.over()
	began := time.Now()
	err := t.Tx.Rollback()
	t.c.done(began, err)
	return err
}

type guardedStmt struct {
	driver.Stmt

	c *guardedConn
}

func (s *guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, s.c, func(ctx context.Context) (driver.Result, error) {
		if e, ok := s.Stmt.(driver.StmtExecContext); ok {
			return e.ExecContext(ctx, args)
		}
		values, err := plain(args)
		if err != nil {
			return nil, err
		}
		return s.Stmt.Exec(values) //nolint:staticcheck // there is nothing else
	})
}

func (s *guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, func(ctx context.Context) (driver.Rows, error) {
		if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return q.QueryContext(ctx, args)
		}
		values, err := plain(args)
		if err != nil {
			return nil, err
		}
		return s.Stmt.Query(values) //nolint:staticcheck // there is nothing else
	})
}

func (s *guardedStmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.c.CheckNamedValue(v)
}

func (s *guardedStmt) ColumnConverter(i int) driver.ValueConverter {
	if c, ok := s.Stmt.(driver.ColumnConverter); ok { //nolint:staticcheck // some drivers have no other
		return c.ColumnConverter(i)
	}
	return driver.DefaultParameterConverter
}

// plain makes arguments those of a driver that knows no names.
func plain(args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, errors.New("sql: driver does not support the use of Named Parameters")
		}
		values[i] = a.Value
	}
	return values, nil
}
