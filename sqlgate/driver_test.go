package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
)

// guardedAt returns a pool whose driver is guarded.
func guardedAt(t *testing.T, c driver.Connector, p *policy.Pipeline, cfg sqlgate.DriverConfig) *sql.DB {
	t.Helper()
	own, err := sqlgate.Connector(c, p, cfg)
	require.NoError(t, err)
	db := sql.OpenDB(own)
	db.SetMaxOpenConns(2)
	return db
}

func scan(rows *sql.Rows, err error) (n int, _ error) {
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

// What holds a permit where the driver is called, and what is counted.
func TestDriverPermits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := pipe(t)
	w := &world{rows: 3, sets: 1}
	db := guardedAt(t, w, p, sqlgate.DriverConfig{})
	defer db.Close()
	require.NoError(t, db.PingContext(ctx))
	require.Equal(t, figures{calls: 2}, figuresOf(p), "the connection and the ping")
	require.Zero(t, inFlight(p))

	rows, err := db.QueryContext(ctx, "SELECT")
	require.NoError(t, err)
	require.Equal(t, 1, inFlight(p))
	for rows.Next() {
	}
	require.Equal(t, 1, inFlight(p), "there is another set, which the wrapper has not hidden")
	require.True(t, rows.NextResultSet())
	for rows.Next() {
	}
	require.Zero(t, inFlight(p))

	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for range 3 {
		_, err = tx.ExecContext(ctx, "UPDATE")
		require.NoError(t, err)
		_, err = scan(tx.QueryContext(ctx, "SELECT"))
		require.NoError(t, err)
		require.Equal(t, 1, inFlight(p), "the transaction's")
	}
	require.NoError(t, tx.Commit())
	require.Zero(t, inFlight(p))
	require.Equal(t, figures{calls: 4}, figuresOf(p), "one more for the query, and one for the transaction")

	s, err := db.PrepareContext(ctx, "SELECT")
	require.NoError(t, err)
	rows, err = s.QueryContext(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, inFlight(p))
	require.NoError(t, rows.Close())
	require.Zero(t, inFlight(p))
	_, err = s.ExecContext(ctx)
	require.NoError(t, err)
	tx, err = db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.StmtContext(ctx, s).ExecContext(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.NoError(t, s.Close())
	require.Zero(t, inFlight(p))
}

// A refusal reaches the caller, once, and is not taken for a bad connection.
func TestDriverRefuses(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	w := &world{rows: 3}
	db := guardedAt(t, w, p, sqlgate.DriverConfig{})
	defer db.Close()
	conns := make([]*sql.Conn, 2) // opened one after the other, as each opening is an attempt
	for i := range conns {
		conns[i], err = db.Conn(t.Context())
		require.NoError(t, err)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	rows, err := db.QueryContext(t.Context(), "SELECT")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE")
	var re *policy.RejectedError
	require.ErrorAs(t, err, &re)
	require.Equal(t, "db", re.Dependency)
	require.EqualValues(t, 1, p.Snapshot().Attempts[policy.NotRun], "database/sql has not repeated it")
	_, err = db.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.NoError(t, rows.Close())
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE")
	require.NoError(t, err, "a transaction that has begun goes on")
	require.NoError(t, tx.Commit())
}

// A database that is away is noticed where connections are opened.
func TestDriverOpensTheBreakerOnConnections(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", breaker.Config{MinCalls: 3, OpenFor: time.Hour})
	require.NoError(t, err)
	var dials atomic.Int64
	w := &world{connect: func(context.Context) error { dials.Add(1); return errLost }}
	db := guardedAt(t, w, p, sqlgate.DriverConfig{})
	defer db.Close()
	for range 3 {
		_, err = db.ExecContext(t.Context(), "UPDATE")
		require.ErrorIs(t, err, errLost)
	}
	_, err = db.ExecContext(t.Context(), "UPDATE")
	require.ErrorIs(t, err, breaker.ErrOpen)
	require.EqualValues(t, 3, dials.Load())
}

// Errors in and out of transactions, of rows half-way, and those that are database/sql's
// business.
func TestDriverOutcomes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fail := func(err error) func(context.Context, string) error { return failing(1, "X", err) }
	tests := []struct {
		name string
		w    *world
		use  func(db *sql.DB) error
		err  error
		figs figures // the opening of connections included
	}{
		{name: "failure", w: &world{run: fail(errLost)}, err: errLost, figs: figures{calls: 2, failures: 1}},
		{name: "permanent", w: &world{run: fail(stateError("42601"))}, err: stateError("42601"), figs: figures{calls: 2}},
		{name: "contention", w: &world{run: fail(stateError("40001"))}, err: stateError("40001"), figs: figures{calls: 1}},
		{name: "a connection that was lost before", w: &world{run: fail(driver.ErrBadConn)}, figs: figures{calls: 3}},
		{
			name: "rows that fail", err: errLost, figs: figures{calls: 2, failures: 1},
			w:   &world{rows: 3, next: func(_ context.Context, i int) error { return []error{nil, errLost}[min(i, 1)] }},
			use: func(db *sql.DB) error { _, err := scan(db.QueryContext(ctx, "SELECT")); return err },
		},
		{
			name: "in a transaction", w: &world{run: fail(errLost)}, err: errLost, figs: figures{calls: 2, failures: 1},
			use: func(db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				_, err = tx.ExecContext(ctx, "X")
				return err
			},
		},
		{
			name: "rows in a transaction", err: errLost, figs: figures{calls: 2, failures: 1},
			w: &world{rows: 3, next: func(context.Context, int) error { return errLost }},
			use: func(db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				_, err = scan(tx.QueryContext(ctx, "SELECT"))
				return err
			},
		},
		{
			name: "commit", w: &world{run: failing(1, "commit", errLost)}, err: errLost, figs: figures{calls: 2, failures: 1},
			use: func(db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				return tx.Commit()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			db := guardedAt(t, tt.w, p, sqlgate.DriverConfig{})
			defer db.Close()
			if tt.use == nil {
				tt.use = func(db *sql.DB) error { _, err := db.ExecContext(ctx, "X"); return err }
			}
			require.ErrorIs(t, tt.use(db), tt.err)
			require.Equal(t, tt.figs, figuresOf(p))
			require.Zero(t, inFlight(p))
		})
	}
}

// The context ends what is held, as database/sql closes rows and rolls back then.
func TestDriverContextEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, policy.Timeouts{Attempt: time.Second})
		db := guardedAt(t, &world{rows: 3}, p, sqlgate.DriverConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := db.QueryContext(ctx, "SELECT")
		require.NoError(t, err)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		time.Sleep(time.Minute) // the attempt's timeout does not bound what follows the answer
		require.True(t, rows.Next())
		_, err = tx.ExecContext(ctx, "UPDATE")
		require.NoError(t, err)
		require.Equal(t, 2, inFlight(p))
		cancel()
		synctest.Wait()
		require.Zero(t, inFlight(p))
		_ = rows.Close()
		_ = tx.Rollback()
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// oldDriver has nothing that was added to database/sql since Go 1.8.
type oldDriver struct{ w *world }

func (d oldDriver) Open(string) (driver.Conn, error) { return oldConn(d), nil }

type oldConn struct{ w *world }

func (c oldConn) Prepare(query string) (driver.Stmt, error) { return oldStmt{c.w, query}, nil }
func (c oldConn) Close() error                              { return nil }
func (c oldConn) Begin() (driver.Tx, error)                 { return oldTx{}, nil }

type oldTx struct{}

func (oldTx) Commit() error   { return nil }
func (oldTx) Rollback() error { return nil }

type oldStmt struct {
	w     *world
	query string
}

func (oldStmt) Close() error  { return nil }
func (oldStmt) NumInput() int { return 1 }

// ColumnConverter makes every argument a text.
func (oldStmt) ColumnConverter(int) driver.ValueConverter { return driver.String }

func (s oldStmt) Exec(args []driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), s.w.say(context.Background(), fmt.Sprint(s.query, " ", args[0]))
}

func (s oldStmt) Query(args []driver.Value) (driver.Rows, error) {
	err := s.w.say(context.Background(), fmt.Sprint(s.query, " ", args[0]))
	return &worldRows{w: s.w, ctx: context.Background()}, err
}

var registered atomic.Int64

// A driver of the oldest kind works as before, by its name.
func TestOldDriver(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	w := &world{rows: 2}
	d, err := sqlgate.Driver(oldDriver{w}, p, sqlgate.DriverConfig{})
	require.NoError(t, err)
	name := fmt.Sprint("sqlgate-old-", registered.Add(1)) // a name cannot be registered twice
	sql.Register(name, d)
	db, err := sql.Open(name, "anything")
	require.NoError(t, err)
	defer db.Close()
	ctx := t.Context()
	_, err = db.ExecContext(ctx, "UPDATE", 7)
	require.NoError(t, err)
	n, err := scan(db.QueryContext(ctx, "SELECT", 8))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"UPDATE 7", "SELECT 8"}, w.said())
	_, err = db.ExecContext(ctx, "UPDATE", sql.Named("a", 1))
	require.ErrorContains(t, err, "Named")
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.ErrorContains(t, err, "read-only")
	_, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.ErrorContains(t, err, "isolation")
	require.NoError(t, db.PingContext(ctx))
	require.Zero(t, inFlight(p))
	require.Zero(t, figuresOf(p).failures)
}

func TestDriverOnAPool(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	_, err = sqlgate.Connector(&world{}, p, sqlgate.DriverConfig{})
	require.ErrorContains(t, err, "db.pool.policies")
	_, err = sqlgate.Driver(oldDriver{}, p, sqlgate.DriverConfig{})
	require.ErrorContains(t, err, "db.pool.policies")
	require.NoError(t, p.Close(t.Context()))

	// A nil pipeline changes nothing.
	db := guardedAt(t, &world{rows: 2}, nil, sqlgate.DriverConfig{})
	n, err := scan(db.QueryContext(t.Context(), "SELECT"))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, db.Close())
}

// On a real driver the optional interfaces are all there: types of columns, arguments of its
// own kinds, and transactions with options.
func TestDriverOnPostgres(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := pipe(t)
	db := guardedAt(t, connector(t, pgtest.Server(t), nil), p, sqlgate.DriverConfig{
		Classify: func(err error) policy.Kind {
			if errors.Is(err, sql.ErrConnDone) {
				return policy.Busy
			}
			return policy.NotRun
		},
	})
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT 1::int AS a, $1::int[] AS b, 'x'::varchar(7) AS c", []int{1, 2})
	require.NoError(t, err)
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	require.Equal(t, "INT4", types[0].DatabaseTypeName())
	length, ok := types[2].Length()
	require.True(t, ok)
	require.EqualValues(t, 7, length)
	require.NoError(t, rows.Close())

	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	require.NoError(t, err)
	var level string
	require.NoError(t, tx.QueryRowContext(ctx, "SHOW transaction_isolation").Scan(&level))
	require.Equal(t, "serializable", level)
	_, err = tx.ExecContext(ctx, "CREATE TABLE no (n int)")
	require.Equal(t, policy.Permanent, sqlgate.KindOf(err), "%v", err)
	require.NoError(t, tx.Rollback())

	s, err := db.PrepareContext(ctx, "SELECT $1::int + 1")
	require.NoError(t, err)
	var n int
	require.NoError(t, s.QueryRowContext(ctx, 41).Scan(&n))
	require.Equal(t, 42, n)
	require.NoError(t, s.Close())
	require.Zero(t, inFlight(p))
	require.Zero(t, figuresOf(p).failures)
}
