package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// world is a database made of functions. Those that are nil succeed.
type world struct {
	connect func(ctx context.Context) error
	run     func(ctx context.Context, query string) error // every statement, begin, commit and rollback too
	next    func(ctx context.Context, i int) error        // before row i of a query
	rows    int                                           // of every query
	sets    int                                           // further sets of rows
	quiet   bool                                          // keeps no log

	mu      sync.Mutex
	log     []string
	conns   atomic.Int64 // open now
	prepare atomic.Int64
}

func (w *world) say(ctx context.Context, query string) error {
	if !w.quiet {
		w.mu.Lock()
		w.log = append(w.log, query)
		w.mu.Unlock()
	}
	if w.run == nil {
		return nil
	}
	return w.run(ctx, query)
}

// said returns what was run so far.
func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.log...)
}

func (w *world) count(query string) (n int) {
	for _, q := range w.said() {
		if q == query {
			n++
		}
	}
	return n
}

func (w *world) Connect(ctx context.Context) (driver.Conn, error) {
	if w.connect != nil {
		if err := w.connect(ctx); err != nil {
			return nil, err
		}
	}
	w.conns.Add(1)
	return &worldConn{w: w}, nil
}

func (w *world) Driver() driver.Driver { return worldDriver{w} }

type worldDriver struct{ w *world }

func (d worldDriver) Open(string) (driver.Conn, error) { return d.w.Connect(context.Background()) }

type worldConn struct{ w *world }

func (c *worldConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *worldConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.w.prepare.Add(1)
	if err := c.w.say(ctx, "prepare "+query); err != nil {
		return nil, err
	}
	return &worldStmt{c: c, query: query}, nil
}

func (c *worldConn) Close() error { c.w.conns.Add(-1); return nil }

func (c *worldConn) Ping(ctx context.Context) error { return c.w.say(ctx, "ping") }

func (c *worldConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *worldConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if err := c.w.say(ctx, "begin"); err != nil {
		return nil, err
	}
	return &worldTx{c}, nil
}

func (c *worldConn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if err := c.w.say(ctx, query); err != nil {
		return nil, err
	}
	return driver.RowsAffected(1), nil
}

func (c *worldConn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := c.w.say(ctx, query); err != nil {
		return nil, err
	}
	return &worldRows{w: c.w, ctx: ctx, left: c.w.sets}, nil
}

type worldStmt struct {
	c     *worldConn
	query string
}

func (s *worldStmt) Close() error  { return nil }
func (s *worldStmt) NumInput() int { return -1 }

func (s *worldStmt) Exec([]driver.Value) (driver.Result, error) { panic("not called") }
func (s *worldStmt) Query([]driver.Value) (driver.Rows, error)  { panic("not called") }

func (s *worldStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

func (s *worldStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

type worldTx struct{ c *worldConn }

func (t *worldTx) Commit() error   { return t.c.w.say(context.Background(), "commit") }
func (t *worldTx) Rollback() error { return t.c.w.say(context.Background(), "rollback") }

type worldRows struct {
	w       *world
	ctx     context.Context //nolint:containedctx // a query's
	i, left int
}

func (r *worldRows) Columns() []string      { return []string{"n"} }
func (r *worldRows) Close() error           { return nil }
func (r *worldRows) HasNextResultSet() bool { return r.left > 0 }
func (r *worldRows) NextResultSet() error   { r.left--; r.i = 0; return nil }
func (r *worldRows) Next(dest []driver.Value) error {
	if r.w.next != nil {
		if err := r.w.next(r.ctx, r.i); err != nil {
			return err
		}
	}
	if r.i >= r.w.rows {
		return io.EOF
	}
	r.i++
	dest[0] = int64(r.i)
	return nil
}

// stateError is an error of a database that knows SQLSTATE.
type stateError string

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }

var errLost = errors.New("connection reset by peer")

// open returns a guarded pool of the given size.
func open(tb testing.TB, w *world, conns int, p *policy.Pipeline, cfg sqlgate.Config) *sqlgate.DB {
	tb.Helper()
	inner := sql.OpenDB(w)
	inner.SetMaxOpenConns(conns)
	inner.SetMaxIdleConns(conns)
	db, err := sqlgate.Wrap(inner, p, cfg)
	require.NoError(tb, err)
	return db
}

// pipe returns a pipeline with a bulkhead and a breaker that opens for nothing.
func pipe(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("db", append([]policy.Policy{
		bulkhead.Semaphore{Limit: 1000}, breaker.Config{MinCalls: 1000, Window: hour, SlowAfter: second},
	}, policies...)...)
	require.NoError(tb, err)
	return p
}

// inFlight returns the permits that are out: of the pipeline's bulkhead and of the pool.
func inFlight(p *policy.Pipeline) (n int) {
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			n += ps.Bulkhead.InFlight
		}
	}
	return n
}

type figures struct{ calls, failures, slow uint64 }

func figuresOf(p *policy.Pipeline) (f figures) {
	for _, ps := range p.Snapshot().Policies {
		if b := ps.Breaker; b != nil {
			f = figures{b.Calls, b.Failures, b.Slow}
		}
	}
	return f
}

func poolOf(p *policy.Pipeline, name string) policy.PolicySnapshot {
	for _, ps := range p.Snapshot().Policies {
		if ps.Name == name {
			return ps
		}
	}
	return policy.PolicySnapshot{}
}

// drain reads rows to their end.
func drain(rows *sqlgate.Rows, err error) (n int, _ error) {
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
