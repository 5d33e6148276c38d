package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cfg   sqlgate.Config
		field string
	}{
		{sqlgate.Config{MaxConns: -1}, "MaxConns"},
		{sqlgate.Config{MaxConns: math.MaxInt32, MaxWaiters: -1}, "MaxWaiters"},
		{sqlgate.Config{MaxWait: 5}, "MaxWait"},
		{sqlgate.Config{MaxWait: -1, MaxWaiters: 3}, "MaxWaiters"},
		{sqlgate.Config{MaxConns: -1, MaxWait: 5}, "MaxWait"},
	}
	for _, tt := range tests {
		err := tt.cfg.Validate()
		var ce *policy.ConfigError
		require.ErrorAs(t, err, &ce, "%+v", tt.cfg)
		require.ErrorContains(t, err, "connections."+tt.field, "%+v", tt.cfg)
	}
	require.NoError(t, sqlgate.Config{}.Validate())
	require.NoError(t, sqlgate.Config{MaxWait: -1}.Validate())

	p := pipe(t)
	inner := sql.OpenDB(&world{})
	defer inner.Close()
	_, err := sqlgate.Wrap(inner, p, sqlgate.Config{})
	require.ErrorContains(t, err, "db.connections.MaxConns: 0", "a pool without a bound")
	inner.SetMaxOpenConns(5)
	_, err = sqlgate.Wrap(inner, p, sqlgate.Config{MaxConns: 6})
	require.ErrorContains(t, err, "db.connections.MaxConns: 6")

	db, err := sqlgate.Wrap(inner, p, sqlgate.Config{})
	require.NoError(t, err)
	cfg := db.Config()
	assert.Equal(t, "connections", cfg.Name)
	assert.Equal(t, 5, cfg.MaxConns)
	assert.Equal(t, 5, cfg.MaxWaiters)
	assert.Equal(t, time.Second, cfg.MaxWait)
	_, err = sqlgate.Wrap(inner, p, sqlgate.Config{})
	require.ErrorContains(t, err, "db.connections.Name", "two pools of one pipeline need two names")

	require.Error(t, db.SetMaxOpenConns(0))
	require.Equal(t, 5, db.Stats().MaxOpenConnections)
	require.NoError(t, db.SetMaxOpenConns(7))
	assert.Equal(t, 7, db.Config().MaxConns)
	assert.Equal(t, 7, db.Stats().MaxOpenConnections)
	assert.Same(t, inner, db.Unwrap())
	require.NoError(t, db.Close())
	require.Empty(t, poolOf(p, "connections").Name, "a pool that is closed is not shown")
}

// The wait for a connection is bounded in time and in number, seen, and the database's time.
func TestWaitForConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{run: func(context.Context, string) error { time.Sleep(400 * time.Millisecond); return nil }}
		p := pipe(t)
		db := open(t, w, 1, p, sqlgate.Config{MaxWait: 600 * time.Millisecond, MaxWaiters: 2})
		defer db.Close()
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { _, errs[i] = db.ExecContext(t.Context(), "UPDATE") })
			time.Sleep(time.Millisecond)
		}
		// One runs until 400 ms, one from then until 800 ms. The third has waited 600 ms
		// before that; the fourth found two waiting.
		wg.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		for i, reason := range map[int]policy.Reason{2: policy.ReasonWait, 3: policy.ReasonWaiters} {
			var re *policy.RejectedError
			require.ErrorAs(t, errs[i], &re, "call %d", i)
			require.Equal(t, reason, re.Reason, "call %d", i)
			require.Equal(t, "db", re.Dependency)
			require.Equal(t, "connections", re.Policy)
			require.ErrorIs(t, errs[i], bulkhead.ErrFull)
		}
		require.Equal(t, 2, w.count("UPDATE"))

		s := p.Snapshot()
		require.EqualValues(t, 2, s.Attempts[policy.Success])
		require.EqualValues(t, 1, s.Attempts[policy.Throttled], "that which waited in vain")
		require.EqualValues(t, 1, s.Attempts[policy.NotRun])
		pool := poolOf(p, "connections")
		require.Equal(t, "connections", pool.Kind)
		require.True(t, pool.Waits)
		require.EqualValues(t, 1, pool.Rejected[policy.ReasonWait])
		require.EqualValues(t, 1, pool.Rejected[policy.ReasonWaiters])
		b := pool.Bulkhead
		require.EqualValues(t, 2, b.Wait.Count())
		require.Equal(t, 399*time.Millisecond+600*time.Millisecond, b.Wait.Sum)
		require.Equal(t, 2, b.MostWaiting)
		require.EqualValues(t, 2, b.Run.Count(), "statements alone")
		require.Equal(t, 800*time.Millisecond, b.Run.Sum)
		require.Zero(t, db.Stats().WaitCount, "nobody waits where it is not seen")
		require.Zero(t, inFlight(p))
		// The second took 400 ms and waited 399.
		require.Equal(t, 400*time.Millisecond+799*time.Millisecond+600*time.Millisecond, s.Latency.Sum)
	})
}

// A breaker opens on waits that are long, though no statement is slow and nothing fails.
func TestLongWaitsAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{run: func(context.Context, string) error { time.Sleep(90 * time.Millisecond); return nil }}
		p, err := policy.New("db", breaker.Config{SlowAfter: 100 * time.Millisecond, SlowRatio: 0.5, MinCalls: 10, Window: time.Second, OpenFor: 5 * time.Second})
		require.NoError(t, err)
		db := open(t, w, 2, p, sqlgate.Config{MaxWait: 200 * time.Millisecond, MaxWaiters: 20})
		defer db.Close()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 3 {
					_, _ = db.ExecContext(t.Context(), "UPDATE")
				}
			})
		}
		wg.Wait()
		s := p.Snapshot()
		require.Equal(t, "open", s.Policies[0].Breaker.State)
		require.Equal(t, breaker.WhySlowRatio, s.Policies[0].Breaker.Why)
		require.Zero(t, s.Policies[0].Breaker.Failures)
		require.LessOrEqual(t, poolOf(p, "connections").Bulkhead.Run.Quantile(1), 100*time.Millisecond)
	})
}

func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := open(t, &world{rows: 3}, 1, p, sqlgate.Config{MaxWait: -1, Name: "pool"})
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE")
	var re *policy.RejectedError
	require.ErrorAs(t, err, &re)
	require.Equal(t, policy.ReasonConcurrency, re.Reason)
	require.Equal(t, "pool", re.Policy)
	require.False(t, poolOf(p, "pool").Waits)
	require.NoError(t, rows.Close())
	_, err = db.ExecContext(t.Context(), "UPDATE")
	require.NoError(t, err)
}

// What holds a connection, and until when.
func TestPermitsAreHeldAsLongAsConnections(t *testing.T) {
	t.Parallel()
	type use struct {
		*testing.T

		ctx  context.Context //nolint:containedctx // a table's
		db   *sqlgate.DB
		held func(bool)
	}
	tests := map[string]func(u use){
		"rows, read to the end": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			rows, err := db.QueryContext(ctx, "SELECT")
			require.NoError(t, err)
			for rows.Next() {
				var n int
				require.NoError(t, rows.Scan(&n))
				held(true)
			}
			held(false)
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
		},
		"rows, closed": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			rows, err := db.QueryContext(ctx, "SELECT")
			require.NoError(t, err)
			require.True(t, rows.Next())
			cols, err := rows.Columns()
			require.NoError(t, err)
			require.Equal(t, []string{"n"}, cols)
			types, err := rows.ColumnTypes()
			require.NoError(t, err)
			require.Len(t, types, 1)
			held(true)
			require.NoError(t, rows.Close())
			held(false)
			require.NoError(t, rows.Close())
		},
		"a row": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			row := db.QueryRowContext(ctx, "SELECT")
			require.NoError(t, row.Err())
			held(true)
			var n int
			require.NoError(t, row.Scan(&n))
			require.Equal(t, 1, n)
			held(false)
		},
		"raw bytes": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			var b sql.RawBytes
			require.Error(t, db.QueryRowContext(ctx, "SELECT").Scan(&b))
			held(false)
		},
		"a scan that fails": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			var b time.Time
			require.Error(t, db.QueryRowContext(ctx, "SELECT").Scan(&b))
			held(false)
		},
		"a transaction": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "UPDATE")
			require.NoError(t, err)
			n, err := drain(tx.QueryContext(ctx, "SELECT"))
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.NoError(t, tx.QueryRowContext(ctx, "SELECT").Scan(&n))
			s, err := tx.PrepareContext(ctx, "UPDATE")
			require.NoError(t, err)
			_, err = s.ExecContext(ctx)
			require.NoError(t, err)
			held(true)
			require.NoError(t, tx.Commit())
			held(false)
			require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
		},
		"rolled back": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			held(true)
			require.NoError(t, tx.Rollback())
			held(false)
		},
		"a connection": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			c, err := db.Conn(ctx)
			require.NoError(t, err)
			require.NoError(t, c.PingContext(ctx))
			_, err = c.ExecContext(ctx, "UPDATE")
			require.NoError(t, err)
			tx, err := c.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = drain(tx.QueryContext(ctx, "SELECT"))
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			held(true)
			s, err := c.PrepareContext(ctx, "SELECT")
			require.NoError(t, err)
			var n int
			require.NoError(t, s.QueryRowContext(ctx).Scan(&n))
			require.NoError(t, s.Close())
			require.NoError(t, c.QueryRowContext(ctx, "SELECT").Scan(&n))
			require.NoError(t, c.Raw(func(any) error { return nil }))
			held(true)
			require.NoError(t, c.Close())
			held(false)
			require.ErrorIs(t, c.Close(), sql.ErrConnDone)
		},
		"a statement": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			s, err := db.PrepareContext(ctx, "SELECT")
			require.NoError(t, err)
			held(false)
			rows, err := s.QueryContext(ctx)
			require.NoError(t, err)
			held(true)
			require.NoError(t, rows.Close())
			held(false)
			_, err = s.ExecContext(ctx)
			require.NoError(t, err)
			held(false)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			in := tx.StmtContext(ctx, s)
			_, err = in.ExecContext(ctx)
			require.NoError(t, err)
			held(true)
			require.NoError(t, tx.Commit())
			held(false)
			require.NoError(t, s.Close())
		},
		"exec and ping": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			_, err := db.ExecContext(ctx, "UPDATE")
			require.NoError(t, err)
			require.NoError(t, db.PingContext(ctx))
			held(false)
		},
		"in a transaction": func(u use) {
			t, ctx, db, held := u.T, u.ctx, u.db, u.held
			require.NoError(t, sqlgate.InTx(ctx, db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE")
				held(true)
				return err
			}))
			held(false)
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			db := open(t, &world{rows: 3}, 1, p, sqlgate.Config{})
			defer db.Close()
			run(use{t, t.Context(), db, func(want bool) {
				t.Helper()
				n := 0
				if want {
					n = 2
				}
				require.Equal(t, n, inFlight(p), "a permit of the pipeline and one of the pool")
				require.Equal(t, n/2, db.Stats().InUse)
			}})
			require.Zero(t, inFlight(p))
			require.Zero(t, figuresOf(p).failures)
		})
	}
}

// Rows of several sets end with the last.
func TestResultSets(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := open(t, &world{rows: 2, sets: 1}, 1, p, sqlgate.Config{})
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "CALL")
	require.NoError(t, err)
	n, err := drain(rows, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 2, inFlight(p), "there is another set")
	require.True(t, rows.NextResultSet())
	n, err = drain(rows, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Zero(t, inFlight(p))
	require.False(t, rows.NextResultSet())
}

// No row is an answer.
func TestNoRows(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := open(t, &world{}, 1, p, sqlgate.Config{})
	defer db.Close()
	var n int
	require.ErrorIs(t, db.QueryRowContext(t.Context(), "SELECT").Scan(&n), sql.ErrNoRows)
	require.Equal(t, figures{calls: 1}, figuresOf(p))
	require.ErrorIs(t, sqlgate.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT").Scan(&n)
	}), sql.ErrNoRows)
	require.Equal(t, figures{calls: 2}, figuresOf(p))
	require.EqualValues(t, 2, p.Snapshot().Attempts[policy.Success])
}

// Rows that break off are a failure after all.
func TestRowsThatFail(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		p := pipe(t)
		w := &world{rows: 5, next: func(_ context.Context, i int) error {
			if i == 2 {
				return errLost
			}
			return nil
		}}
		db := open(t, w, 1, p, sqlgate.Config{})
		query, end := db.QueryContext, func() {}
		if inTx {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			query, end = tx.QueryContext, func() { _ = tx.Rollback() }
		}
		n, err := drain(query(t.Context(), "SELECT"))
		require.ErrorIs(t, err, errLost)
		require.Equal(t, 2, n)
		end()
		require.Zero(t, inFlight(p))
		require.Equal(t, figures{calls: 1, failures: 1}, figuresOf(p), "in a transaction: %t", inTx)
		require.NoError(t, db.Close())
	}
}

// The context of rows and of a transaction ends them, and what they hold.
func TestContextEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(ctx context.Context, db *sqlgate.DB) (any, error){
		"rows": func(ctx context.Context, db *sqlgate.DB) (any, error) { return db.QueryContext(ctx, "SELECT") },
		"tx":   func(ctx context.Context, db *sqlgate.DB) (any, error) { return db.BeginTx(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pipe(t)
				db := open(t, &world{rows: 3}, 1, p, sqlgate.Config{})
				defer db.Close()
				ctx, cancel := context.WithCancel(t.Context())
				v, err := begin(ctx, db)
				require.NoError(t, err)
				require.Equal(t, 2, inFlight(p))
				cancel()
				synctest.Wait()
				require.Zero(t, inFlight(p))
				require.Zero(t, db.Stats().InUse)
				require.Equal(t, figures{calls: 1}, figuresOf(p), "the caller's wish is nobody's failure")
				runtime.KeepAlive(v)

				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				v, err = begin(ctx, db)
				require.NoError(t, err)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Zero(t, inFlight(p))
				require.Equal(t, figures{calls: 2, failures: 1}, figuresOf(p), "a deadline is, as everywhere")
				runtime.KeepAlive(v)
			})
		})
	}
}

// What is lost is found, ended and told.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(ctx context.Context, db *sqlgate.DB) error{
		"rows": func(ctx context.Context, db *sqlgate.DB) error {
			rows, err := db.QueryContext(ctx, "SELECT")
			if err == nil {
				rows.Next()
			}
			return err
		},
		"tx":   func(ctx context.Context, db *sqlgate.DB) error { _, err := db.BeginTx(ctx, nil); return err },
		"conn": func(ctx context.Context, db *sqlgate.DB) error { _, err := db.Conn(ctx); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := pipe(t)
			told := make(chan sqlgate.Abandoned, 1)
			db := open(t, &world{rows: 3}, 1, p, sqlgate.Config{OnAbandoned: func(a sqlgate.Abandoned) { told <- a; panic("dropped") }})
			defer db.Close()
			require.NoError(t, lose(context.Background(), db)) //nolint:usetesting // one that does not end
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
			require.Zero(t, db.Stats().InUse)
			require.EqualValues(t, 1, p.Snapshot().Abandoned)
			require.Equal(t, figures{calls: 1}, figuresOf(p))
		})
	}
}

// Rows of a transaction keep it from being found while they are read.
func TestRowsKeepTheirTransaction(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := open(t, &world{rows: 3}, 1, p, sqlgate.Config{})
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil) //nolint:usetesting // one that does not end
	require.NoError(t, err)
	rows, err := tx.QueryContext(t.Context(), "SELECT")
	require.NoError(t, err)
	for range 5 {
		runtime.GC()
	}
	require.Equal(t, 2, inFlight(p))
	n, err := drain(rows, nil)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.NoError(t, tx.Rollback())
	require.Zero(t, inFlight(p))
}

// Without a pipeline there is still the bound.
func TestNoPipeline(t *testing.T) {
	t.Parallel()
	db := open(t, &world{rows: 1}, 1, nil, sqlgate.Config{MaxWait: -1})
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	err = db.PingContext(t.Context())
	var re *policy.RejectedError
	require.ErrorAs(t, err, &re)
	require.Equal(t, policy.ReasonConcurrency, re.Reason)
	require.NoError(t, tx.Commit())
	require.Equal(t, 0, db.Snapshot(time.Now()).Bulkhead.InFlight)
	require.NoError(t, db.PingContext(t.Context()))
	require.NoError(t, db.Close())
}

// As many goroutines as like do everything at once; in the end nothing is out.
func TestConcurrentSafe(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	w := &world{rows: 3, run: func(_ context.Context, q string) error {
		if q == "FAIL" {
			return errLost
		}
		return nil
	}}
	db := open(t, w, 3, p, sqlgate.Config{MaxWait: time.Minute, MaxWaiters: 100})
	defer db.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				switch (i + j) % 7 {
				case 0:
					_, _ = drain(db.QueryContext(ctx, "SELECT"))
				case 1:
					_, _ = db.ExecContext(ctx, "FAIL")
				case 2:
					go cancel()
					_, _ = drain(db.QueryContext(ctx, "SELECT"))
				case 3:
					tx, err := db.BeginTx(ctx, nil)
					if err == nil {
						_, _ = tx.ExecContext(ctx, "UPDATE")
						go cancel()
						_ = tx.Commit()
						_ = tx.Rollback()
					}
				case 4:
					_ = sqlgate.InTx(ctx, db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
						_, err := tx.ExecContext(ctx, []string{"UPDATE", "FAIL"}[j%2])
						return err
					})
				case 5:
					rows, err := db.QueryContext(ctx, "SELECT")
					if err == nil {
						wg.Go(func() { _ = rows.Close() })
						rows.Next()
						_ = rows.Close()
					}
				case 6:
					if c, err := db.Conn(ctx); err == nil {
						_ = c.PingContext(ctx)
						_ = c.Close()
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return inFlight(p) == 0 && db.Stats().InUse == 0 }, 10*time.Second, time.Millisecond)
	require.LessOrEqual(t, poolOf(p, "connections").Bulkhead.HighWater, 3)
}

// A panic of a classifier, and of the function of a transaction, gives everything back.
func TestPanics(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	w := &world{run: func(_ context.Context, q string) error {
		if q == "FAIL" {
			return errLost
		}
		return nil
	}}
	db := open(t, w, 1, p, sqlgate.Config{Classify: func(err error) policy.Kind {
		if errors.Is(err, errLost) {
			panic("boom")
		}
		return policy.NotRun
	}})
	defer db.Close()
	require.PanicsWithValue(t, "boom", func() { _, _ = db.ExecContext(t.Context(), "FAIL") })
	require.PanicsWithValue(t, "boom", func() { _, _ = db.QueryContext(t.Context(), "FAIL") })
	require.PanicsWithValue(t, "bang", func() {
		_ = sqlgate.InTx(t.Context(), db, nil, func(context.Context, *sqlgate.Tx) error { panic("bang") })
	})
	require.Zero(t, inFlight(p))
	require.Zero(t, db.Stats().InUse)
	require.Equal(t, 1, w.count("rollback"))
	require.Equal(t, figures{calls: 1, failures: 1}, figuresOf(p), "the function's panic is counted, as everywhere; a classifier's says nothing")
	require.Zero(t, w.count("commit"))
}
