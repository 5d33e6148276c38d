package pgxgate_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
	"github.com/breakwater-go/breakwater/sqlgate/pgxgate"
)

// What holds a connection, and until when; and that pgx's own helpers work on what is
// returned.
func TestPermitsAreHeldAsLongAsConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	type use struct {
		*testing.T

		ctx  context.Context //nolint:containedctx // a table's
		pool *pgxgate.Pool
		held func(bool)
	}
	const three = "SELECT n FROM generate_series(1, 3) n"
	for name, run := range map[string]func(u use){
		"rows, read to the end": func(u use) {
			rows, err := u.pool.Query(u.ctx, three)
			require.NoError(u, err)
			for rows.Next() {
				var n int
				require.NoError(u, rows.Scan(&n))
				require.NotEmpty(u, rows.RawValues())
				u.held(true)
			}
			u.held(false)
			require.NoError(u, rows.Err())
			require.EqualValues(u, 3, rows.CommandTag().RowsAffected())
			rows.Close()
		},
		"rows, closed": func(u use) {
			rows, err := u.pool.Query(u.ctx, three)
			require.NoError(u, err)
			require.Equal(u, "n", rows.FieldDescriptions()[0].Name)
			require.NotNil(u, rows.Conn())
			require.NotNil(u, rows.TypeMap())
			require.True(u, rows.Next())
			v, err := rows.Values()
			require.NoError(u, err)
			require.Equal(u, []any{int32(1)}, v)
			u.held(true)
			rows.Close()
			u.held(false)
			rows.Close()
		},
		"no rows": func(u use) {
			rows, err := u.pool.Query(u.ctx, "SELECT 1 WHERE false")
			require.NoError(u, err)
			u.held(false)
			require.False(u, rows.Next())
			rows.Close()
		},
		"collected": func(u use) {
			rows, _ := u.pool.Query(u.ctx, three)
			list, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(u, err)
			require.Equal(u, []int{1, 2, 3}, list)
			u.held(false)
		},
		"collected, failed": func(u use) {
			rows, _ := u.pool.Query(u.ctx, "SELECT 1 / 0")
			_, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.Equal(u, policy.Permanent, sqlgate.KindOf(err), "%v", err)
			u.held(false)
		},
		"a scan that fails": func(u use) {
			rows, err := u.pool.Query(u.ctx, three)
			require.NoError(u, err)
			require.True(u, rows.Next())
			var d time.Time
			require.Error(u, rows.Scan(&d))
			u.held(false)
		},
		"a row": func(u use) {
			row := u.pool.QueryRow(u.ctx, three)
			u.held(true)
			var n int
			require.NoError(u, row.Scan(&n))
			u.held(false)
			require.ErrorIs(u, u.pool.QueryRow(u.ctx, "SELECT 1 WHERE false").Scan(&n), pgx.ErrNoRows)
			var raw pgtype.DriverBytes
			require.Error(u, u.pool.QueryRow(u.ctx, three).Scan(&raw))
			require.Error(u, u.pool.QueryRow(u.ctx, "SELECT 1 / 0").Scan(&n))
			u.held(false)
		},
		"a transaction": func(u use) {
			tx, err := u.pool.Begin(u.ctx)
			require.NoError(u, err)
			_, err = tx.Exec(u.ctx, "CREATE TEMP TABLE held (n int)")
			require.NoError(u, err)
			rows, err := tx.Query(u.ctx, three)
			require.NoError(u, err)
			list, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(u, err)
			require.Len(u, list, 3)
			var n int
			require.NoError(u, tx.QueryRow(u.ctx, three).Scan(&n))
			copied, err := tx.CopyFrom(u.ctx, pgx.Identifier{"held"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}}))
			require.NoError(u, err)
			require.EqualValues(u, 2, copied)
			_, err = tx.Prepare(u.ctx, "held", three)
			require.NoError(u, err)
			b := new(pgx.Batch)
			b.Queue(three)
			require.NoError(u, tx.SendBatch(u.ctx, b).Close())
			point, err := tx.Begin(u.ctx)
			require.NoError(u, err)
			require.NoError(u, point.Rollback(u.ctx))
			require.NotNil(u, tx.Conn())
			u.held(true)
			require.NoError(u, tx.Commit(u.ctx))
			u.held(false)
			require.ErrorIs(u, tx.Rollback(u.ctx), pgx.ErrTxClosed)
		},
		"rolled back": func(u use) {
			tx, err := u.pool.BeginTx(u.ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
			require.NoError(u, err)
			u.held(true)
			require.NoError(u, tx.Rollback(u.ctx))
			u.held(false)
		},
		"a batch": func(u use) {
			b := new(pgx.Batch)
			b.Queue("SELECT 1")
			b.Queue(three)
			b.Queue("SELECT 3")
			r := u.pool.SendBatch(u.ctx, b)
			u.held(true)
			_, err := r.Exec()
			require.NoError(u, err)
			rows, err := r.Query()
			require.NoError(u, err)
			list, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(u, err)
			require.Len(u, list, 3)
			var n int
			require.NoError(u, r.QueryRow().Scan(&n))
			require.Equal(u, 3, n)
			require.Nil(u, r.Tx())
			u.held(true)
			require.NoError(u, r.Close())
			u.held(false)
			require.NoError(u, r.Close())
		},
		"a batch that begins a transaction": func(u use) {
			b := new(pgx.Batch)
			b.BeginTx(pgx.TxOptions{})
			b.Queue("SELECT 1")
			r := u.pool.SendBatch(u.ctx, b)
			require.NoError(u, r.Close())
			u.held(true)
			tx := r.Tx()
			_, err := tx.Exec(u.ctx, "SELECT 2")
			require.NoError(u, err)
			require.NoError(u, tx.Commit(u.ctx))
			u.held(false)
		},
		"a connection": func(u use) {
			require.NoError(u, u.pool.AcquireFunc(u.ctx, func(c *pgxgate.Conn) error {
				require.NoError(u, c.Ping(u.ctx))
				_, err := c.Exec(u.ctx, "CREATE TEMP TABLE own (n int)")
				require.NoError(u, err)
				_, err = c.CopyFrom(u.ctx, pgx.Identifier{"own"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
				require.NoError(u, err)
				var n int
				require.NoError(u, c.QueryRow(u.ctx, "SELECT n FROM own").Scan(&n))
				tx, err := c.Begin(u.ctx)
				require.NoError(u, err)
				require.NoError(u, tx.Commit(u.ctx))
				require.ErrorIs(u, tx.Rollback(u.ctx), pgx.ErrTxClosed)
				b := new(pgx.Batch)
				b.Queue(three)
				require.NoError(u, c.SendBatch(u.ctx, b).Close())
				require.NotNil(u, c.Conn())
				require.NotNil(u, c.Unwrap())
				u.held(true)
				return nil
			}))
			u.held(false)
		},
		"what is over when it returns": func(u use) {
			_, err := u.pool.Exec(u.ctx, "CREATE TEMP TABLE over (n int)")
			require.NoError(u, err)
			n, err := u.pool.CopyFrom(u.ctx, pgx.Identifier{"over"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}}))
			require.NoError(u, err)
			require.EqualValues(u, 2, n)
			require.NoError(u, u.pool.Ping(u.ctx))
			require.NoError(u, pgxgate.InTx(u.ctx, u.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1")
				u.held(true)
				return err
			}))
			u.held(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			pool := open(t, server, 1, nil, p, sqlgate.Config{})
			defer pool.Close()
			run(use{t, t.Context(), pool, func(want bool) {
				t.Helper()
				n := 0
				if want {
					n = 2
				}
				require.Equal(t, n, inFlight(p), "a permit of the pipeline and one of the pool")
			}})
			require.Zero(t, inFlight(p))
			_, failed := failures(p)
			require.Zero(t, failed)
			require.EqualValues(t, 0, pool.Stat().AcquiredConns())
			require.NotZero(t, pool.Snapshot(time.Now()).Bulkhead.Run.Count())
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	pool := open(t, pgtest.Server(t), 3, nil, p, sqlgate.Config{MaxWait: time.Minute})
	defer pool.Close()
	cfg := pool.Config()
	require.Equal(t, 3, cfg.MaxConns)
	require.Equal(t, "connections", cfg.Name)
	require.Equal(t, time.Minute, cfg.MaxWait)
	_, err := pgxgate.Wrap(pool.Unwrap(), p, sqlgate.Config{MaxConns: 4, Name: "other"})
	require.ErrorContains(t, err, "db.other.MaxConns: 4")
}

// The wait for a connection is bounded, and seen.
func TestWaitForConnection(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	pool := open(t, pgtest.Server(t), 1, nil, p, sqlgate.Config{MaxWait: 20 * time.Millisecond, MaxWaiters: 1})
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	var n int
	for name, call := range map[string]func() error{
		"exec":  func() error { _, err := pool.Exec(t.Context(), "SELECT 1"); return err },
		"query": func() error { rows, err := pool.Query(t.Context(), "SELECT 1"); rows.Close(); return err },
		"row":   func() error { return pool.QueryRow(t.Context(), "SELECT 1").Scan(&n) },
		"begin": func() error { _, err := pool.Begin(t.Context()); return err },
		"batch": func() error { return pool.SendBatch(t.Context(), new(pgx.Batch)).Close() },
		"conn":  func() error { _, err := pool.Acquire(t.Context()); return err },
		"in tx": func() error {
			return pgxgate.InTx(t.Context(), pool, pgx.TxOptions{}, func(context.Context, pgx.Tx) error { return nil })
		},
	} {
		err := call()
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re, name)
		require.Equal(t, policy.ReasonWait, re.Reason, name)
		require.Equal(t, "connections", re.Policy)
	}
	require.EqualValues(t, 7, pool.Snapshot(time.Now()).Bulkhead.Wait.Count())
	require.EqualValues(t, 7, p.Snapshot().Attempts[policy.Throttled])
	require.Zero(t, pool.Stat().EmptyAcquireCount()-1, "nobody waits in the pool but for its first connection")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, inFlight(p))
}

// Failures that come after the first answer correct it.
func TestLateFailures(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	const kill = "SELECT pg_terminate_backend(pg_backend_pid())"
	for name, run := range map[string]func(ctx context.Context, pool *pgxgate.Pool) error{
		"rows": func(ctx context.Context, pool *pgxgate.Pool) error {
			rows, err := pool.Query(ctx, "SELECT CASE WHEN n = 20000 THEN pg_terminate_backend(pg_backend_pid()) END FROM generate_series(1, 100000) n")
			if err != nil {
				return errors.New("too early")
			}
			for rows.Next() {
			}
			return rows.Err()
		},
		"transaction": func(ctx context.Context, pool *pgxgate.Pool) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return errors.New("too early")
			}
			_, err = tx.Exec(ctx, kill)
			_ = tx.Rollback(ctx)
			return err
		},
		"batch": func(ctx context.Context, pool *pgxgate.Pool) error {
			b := new(pgx.Batch)
			b.Queue("SELECT 1")
			b.Queue(kill)
			return pool.SendBatch(ctx, b).Close()
		},
		"connection": func(ctx context.Context, pool *pgxgate.Pool) error {
			return pool.AcquireFunc(ctx, func(c *pgxgate.Conn) error {
				rows, _ := c.Query(ctx, kill)
				rows.Close()
				return rows.Err()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			pool := open(t, server, 1, nil, p, sqlgate.Config{})
			defer pool.Close()
			require.Equal(t, policy.Failure, sqlgate.KindOf(run(t.Context(), pool)))
			calls, failed := failures(p)
			require.EqualValues(t, 1, calls)
			require.EqualValues(t, 1, failed)
			require.Zero(t, inFlight(p))
		})
	}
}

// The end of the context ends rows, though nobody reads them.
func TestContextEndsRows(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	pool := open(t, pgtest.Server(t), 1, nil, p, sqlgate.Config{})
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	rows, err := pool.Query(ctx, "SELECT generate_series(1, 100000)")
	require.NoError(t, err)
	require.True(t, rows.Next())
	cancel()
	require.Eventually(t, func() bool { return inFlight(p) == 0 }, 10*time.Second, time.Millisecond)
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), context.Canceled)
	var n int
	require.ErrorIs(t, rows.Scan(&n), context.Canceled)
	_, err = rows.Values()
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, rows.RawValues())
	rows.Close()
	_, failed := failures(p)
	require.Zero(t, failed)
	require.NoError(t, pool.Ping(t.Context()), "there is another connection")
}

// What is lost is found, ended and told.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	for what, lose := range map[string]func(ctx context.Context, pool *pgxgate.Pool) error{
		"rows": func(ctx context.Context, pool *pgxgate.Pool) error {
			_, err := pool.Query(ctx, "SELECT generate_series(1, 100000)")
			return err
		},
		"tx":   func(ctx context.Context, pool *pgxgate.Pool) error { _, err := pool.Begin(ctx); return err },
		"conn": func(ctx context.Context, pool *pgxgate.Pool) error { _, err := pool.Acquire(ctx); return err },
		"batch": func(ctx context.Context, pool *pgxgate.Pool) error {
			b := new(pgx.Batch)
			b.Queue("SELECT 1")
			pool.SendBatch(ctx, b)
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			told := make(chan sqlgate.Abandoned, 1)
			pool := open(t, server, 1, nil, p, sqlgate.Config{OnAbandoned: func(a sqlgate.Abandoned) { told <- a }})
			defer pool.Close()
			require.NoError(t, lose(context.Background(), pool)) //nolint:usetesting // one that does not end
			require.Equal(t, 2, inFlight(p))
			for found := false; !found; {
				runtime.GC()
				select {
				case a := <-told:
					require.Equal(t, sqlgate.Abandoned{Dependency: "db", What: what}, a)
					found = true
				case <-time.After(10 * time.Millisecond):
				}
			}
			require.Zero(t, inFlight(p))
			require.EqualValues(t, 1, p.Snapshot().Abandoned)
			require.NoError(t, pool.Ping(t.Context()))
		})
	}
}

// Statements are repeated only if they say so; transactions as a whole.
func TestCaseB61StatementsAreNotRepeated(t *testing.T) {
	t.Parallel()
	p := pipe(t, retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond, Budget: retry.NoBudget{}})
	pool := open(t, pgtest.Server(t), 2, nil, p, sqlgate.Config{})
	defer pool.Close()
	ctx := t.Context()
	const kill = "SELECT pg_terminate_backend(pg_backend_pid())"
	_, err := pool.Exec(ctx, kill)
	require.Error(t, err)
	require.Zero(t, p.Snapshot().Retries)
	_, err = pool.Exec(policy.WithCall(ctx, policy.Call{Idempotent: true}), kill)
	require.Error(t, err)
	require.EqualValues(t, 2, p.Snapshot().Retries)

	_, err = pool.Exec(ctx, "DROP TABLE IF EXISTS pgx_accounts; CREATE TABLE pgx_accounts (id int PRIMARY KEY, sum int)")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "INSERT INTO pgx_accounts VALUES (1, 100), (2, 100)")
	require.NoError(t, err)
	var met sync.WaitGroup // the first time, each has its first row before it asks for the second
	met.Add(2)
	var wg sync.WaitGroup
	for _, ids := range [][2]int{{1, 2}, {2, 1}} {
		meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
		wg.Go(func() {
			assert.NoError(t, pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "UPDATE pgx_accounts SET sum = sum - 10 WHERE id = $1", ids[0]); err != nil {
					return err
				}
				meet()
				_, err := tx.Exec(ctx, "UPDATE pgx_accounts SET sum = sum + 10 WHERE id = $1", ids[1])
				return err
			}))
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, p.Snapshot().Attempts[policy.Throttled], "the victim of the deadlock")
	var sum int
	require.NoError(t, pool.QueryRow(ctx, "SELECT min(sum) FROM pgx_accounts").Scan(&sum))
	require.Equal(t, 100, sum, "each was done once")

	// A statement that failed and was not minded: PostgreSQL answers the commit with a rollback.
	_, before := failures(p)
	err = pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	_, after := failures(p)
	require.Equal(t, before, after)
	mine := errors.New("not enough stock")
	require.ErrorIs(t, pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(context.Context, pgx.Tx) error { return mine }), mine)
	require.PanicsWithValue(t, "boom", func() {
		_ = pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(context.Context, pgx.Tx) error { panic("boom") })
	})
	require.Zero(t, inFlight(p))
}

// Everything at once; in the end nothing is out.
func TestConcurrentSafe(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	pool := open(t, pgtest.Server(t), 3, nil, p, sqlgate.Config{MaxWait: time.Minute, MaxWaiters: 100})
	defer pool.Close()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				switch (i + j) % 4 {
				case 0:
					rows, _ := pool.Query(ctx, "SELECT generate_series(1, 1000)")
					_, _ = pgx.CollectRows(rows, pgx.RowTo[int])
				case 1:
					rows, _ := pool.Query(ctx, "SELECT generate_series(1, 100000)")
					go cancel()
					for rows.Next() {
						_, _ = rows.Values()
					}
					rows.Close()
				case 2:
					_ = pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
						_, err := tx.Exec(ctx, "SELECT 1")
						return err
					})
				case 3:
					b := new(pgx.Batch)
					b.Queue("SELECT 1")
					_ = pool.SendBatch(ctx, b).Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return inFlight(p) == 0 }, 10*time.Second, time.Millisecond)
}
