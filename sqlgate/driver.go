package sqlgate

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/ngrok/sqlmw"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// DriverConfig configures [Connector] and [Driver]. The zero value is valid.
type DriverConfig struct {
	// Classify judges an error, as [Config] Classify does. Nil judges nothing.
	Classify func(err error) policy.Kind
}

// Connector puts p between [sql.OpenDB] and a driver: for programs that need a [*sql.DB], such
// as those with an ORM. Each statement that is not in a transaction is an attempt; so are each
// transaction and the opening of each connection, since a database that is away is noticed
// there. A permit is held as by a [DB]: until rows are closed, and until a transaction has
// ended.
//
// What it cannot do, compared with [Wrap], because a driver is called when there is a
// connection:
//
//   - the wait for a connection is not seen, not bounded, and slow to nobody
//   - nothing is tried again, and no fallback answers: the pipeline's retry, hedge, total
//     timeout and fallback have no effect
//   - a gate that waits keeps a connection out of the pool meanwhile, so gates should not
//   - statements on a [sql.Conn] are attempts of their own: with rows open on one, another
//     takes a second permit
//   - a transaction holds one permit and is refused only at its beginning, as by a DB
//   - the driver's own connection is not found by [sql.Conn.Raw], but a wrapper
//
// The error is a [*policy.ConfigError] if p runs its attempts on a pool of workers: a driver
// must have returned before its connection is used again.
func Connector(c driver.Connector, p *policy.Pipeline, cfg DriverConfig) (driver.Connector, error) {
	g, err := newGuard(p, cfg)
	if err != nil {
		return nil, err
	}
	// sqlmw makes connectors of drivers only.
	wrapped, err := sqlmw.Driver(opened{c, g}, interceptor{}).(driver.DriverContext).OpenConnector("") //nolint:forcetypeassert // its driver is one
	if err != nil {
		return nil, err
	}
	return closingConnector{wrapped, c}, nil
}

// Driver is [Connector] for [sql.Register].
func Driver(d driver.Driver, p *policy.Pipeline, cfg DriverConfig) (driver.Driver, error) {
	g, err := newGuard(p, cfg)
	if err != nil {
		return nil, err
	}
	return sqlmw.Driver(guardedDriver{d, g}, interceptor{}), nil
}

// guard is what all connections of a driver go through.
type guard struct {
	p *policy.Pipeline
	j core.Judge
}

func newGuard(p *policy.Pipeline, cfg DriverConfig) (*guard, error) {
	if p.Detaches(policy.Call{}) {
		return nil, &policy.ConfigError{
			Dependency: p.Name(), Policy: "pool", Field: "policies",
			Want: "a driver cannot be called on a pool of workers; use a semaphore, or Wrap",
		}
	}
	return &guard{p: p, j: core.Judge{Pipeline: p, Classify: cfg.Classify}}, nil
}

// enter lets an attempt in. release must follow, or settle and then release.
func (g *guard) enter(ctx context.Context) (policy.Handle, error) { return g.p.Enter(ctx) }

// errAside ends an attempt in which the database was not asked: nobody counts it, and what it
// took is given back.
var errAside = &policy.RejectedError{}

// settle tells how an attempt ended; its permits stay until it is released.
func (g *guard) settle(h policy.Handle, err error) {
	switch {
	case errors.Is(err, driver.ErrSkip), errors.Is(err, driver.ErrBadConn):
		// The driver wants it done in another way, or the connection had been lost before:
		// database/sql sees to both. If there is no other connection to be had, that counts.
		h.Leave(errAside)
	case err == nil:
		h.Settle(policy.Success, 0)
	default:
		kind, pushback := g.j.Of(h.Context(), err)
		if kind == policy.NotRun {
			h.Leave(err)
			return
		}
		h.Settle(kind, pushback)
	}
}

// amend corrects a success.
func (g *guard) amend(h policy.Handle, err error) {
	if err == nil || errors.Is(err, io.EOF) {
		return
	}
	if k, _ := g.j.Of(h.Context(), err); k.IsFailure() {
		h.Amend(k)
	}
}

// do runs what is over when it returns.
func do[T any](ctx context.Context, g *guard, run func(context.Context) (T, error)) (v T, err error) {
	h, err := g.enter(ctx)
	if err != nil {
		return v, err
	}
	defer h.Release() // a panic before settle counts as a failure
	v, err = run(h.Context())
	g.settle(h, err)
	return v, err
}

// opened is a driver whose connector is there already.
type opened struct {
	c driver.Connector
	g *guard
}

func (o opened) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

func (o opened) OpenConnector(string) (driver.Connector, error) {
	return guardedConnector{o.c, o.g}, nil
}

// closingConnector is closed with its [sql.DB].
type closingConnector struct {
	driver.Connector

	inner driver.Connector
}

func (c closingConnector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

type guardedDriver struct {
	driver.Driver

	g *guard
}

// OpenConnector makes a connector of a driver that has none, too: only that has a context.
func (d guardedDriver) OpenConnector(name string) (driver.Connector, error) {
	if dc, ok := d.Driver.(driver.DriverContext); ok {
		c, err := dc.OpenConnector(name)
		if err != nil {
			return nil, err
		}
		return guardedConnector{c, d.g}, nil
	}
	return guardedConnector{named{d.Driver, name}, d.g}, nil
}

// named is the connector of a driver that has none.
type named struct {
	d    driver.Driver
	name string
}

func (n named) Connect(context.Context) (driver.Conn, error) { return n.d.Open(n.name) }
func (n named) Driver() driver.Driver                        { return n.d }

type guardedConnector struct {
	driver.Connector

	g *guard
}

func (c guardedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := do(ctx, c.g, c.Connector.Connect)
	if err != nil {
		return nil, err
	}
	return &guardedConn{Conn: conn, g: c.g}, nil
}

// interceptor carries the attempt of a query from its beginning to the end of its rows, in the
// context that sqlmw keeps for them.
type interceptor struct{ sqlmw.NullInterceptor }

type rowsKey struct{}

// rowsOf is the attempt whose rows are read; that of rows in a transaction is the
// transaction's, and not released with them.
type rowsOf struct {
	g      *guard
	h      policy.Handle
	shared bool
}

func (interceptor) ConnQueryContext(ctx context.Context, conn driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	ctx = context.WithValue(ctx, rowsKey{}, new(rowsOf))
	rows, err := conn.QueryContext(ctx, query, args)
	return ctx, rows, err
}

func (interceptor) StmtQueryContext(ctx context.Context, stmt driver.StmtQueryContext, _ string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	ctx = context.WithValue(ctx, rowsKey{}, new(rowsOf))
	rows, err := stmt.QueryContext(ctx, args)
	return ctx, rows, err
}

func (interceptor) RowsNext(ctx context.Context, rows driver.Rows, dest []driver.Value) error {
	err := rows.Next(dest)
	if r, ok := ctx.Value(rowsKey{}).(*rowsOf); ok && r.g != nil {
		r.g.amend(r.h, err)
	}
	return err
}

func (interceptor) RowsClose(ctx context.Context, rows driver.Rows) error {
	if r, ok := ctx.Value(rowsKey{}).(*rowsOf); ok && r.g != nil && !r.shared {
		defer r.h.Release()
	}
	return rows.Close()
}
