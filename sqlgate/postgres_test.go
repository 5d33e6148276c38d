package sqlgate_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/internal/pgserver"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
)

func pgOpen(t *testing.T, s *pgserver.Server, conns int, p *policy.Pipeline, cfg sqlgate.Config) *sqlgate.DB {
	t.Helper()
	db, err := sqlgate.Wrap(pgPool(t, s, conns, nil), p, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sqlgate.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		_, err := db.Unwrap().ExecContext(t.Context(), q)
		require.NoError(t, err, q)
	}
}

// What PostgreSQL really says.
func TestPostgresErrors(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := pgOpen(t, pgtest.Server(t), 3, p, sqlgate.Config{})
	mustExec(t, db, "DROP TABLE IF EXISTS errs", "CREATE TABLE errs (id int PRIMARY KEY)", "INSERT INTO errs VALUES (1)")
	tests := []struct {
		name, query string
		args        []any
		kind        policy.Kind
	}{
		{name: "fine", query: "SELECT 1", kind: policy.Success},
		{name: "syntax", query: "SELEC 1", kind: policy.Permanent},
		{name: "unique", query: "INSERT INTO errs VALUES (1)", kind: policy.Permanent},
		{name: "division", query: "SELECT 1 / 0", kind: policy.Permanent},
		{name: "an argument that has no form", query: "SELECT $1::int", args: []any{"x"}, kind: policy.Permanent},
		{name: "too few arguments", query: "SELECT $1::int", kind: policy.Permanent},
		{name: "an argument of no kind", query: "SELECT $1::int", args: []any{struct{}{}}, kind: policy.Permanent},
		{name: "statement_timeout", query: "SET statement_timeout = 20; SELECT pg_sleep(60)", kind: policy.Timeout},
		{name: "terminated", query: "SELECT pg_terminate_backend(pg_backend_pid())", kind: policy.Failure},
		{name: "raised", query: "DO $$BEGIN RAISE EXCEPTION 'no'; END$$", kind: policy.Permanent},
	}
	for _, tt := range tests {
		before := p.Snapshot().Attempts
		_, err := db.ExecContext(t.Context(), tt.query, tt.args...)
		after := p.Snapshot().Attempts
		assert.EqualValues(t, 1, after[tt.kind]-before[tt.kind], "%s: %v: %v", tt.name, err, after)
		assert.Zero(t, inFlight(p))
	}
}

// A server that has no connection left for us is busy, and the statement surely did not run.
func TestPostgresIsFull(t *testing.T) {
	t.Parallel()
	s, err := pgserver.Start(t.Context(), pgserver.Config{MaxConnections: 4, Settings: map[string]string{"superuser_reserved_connections": "0"}})
	if err != nil {
		pgtest.Server(t) // skips if there is none
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	others := pgPool(t, s, 4, nil)
	defer others.Close()
	conns := make([]*sql.Conn, 4)
	for i := range conns {
		conns[i], err = others.Conn(t.Context())
		require.NoError(t, err)
	}
	p := pipe(t, retry.Config{MaxAttempts: 50, BaseDelay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond, Budget: retry.NoBudget{}})
	db := pgOpen(t, s, 2, p, sqlgate.Config{})
	watch := p.Watch(watcher(func() { // as soon as one has been refused, there is room
		_ = conns[0].Close()
		others.SetMaxIdleConns(0)
	}))
	defer watch()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE once (id int)")
	require.NoError(t, err)
	require.NotZero(t, p.Snapshot().Attempts[policy.Busy])
	for _, c := range conns[1:] {
		require.NoError(t, c.Close())
	}
}

// watcher runs once, at the first attempt that does not succeed.
func watcher(f func()) policy.Watcher { return &onAttempt{f: sync.OnceFunc(f)} }

type onAttempt struct{ f func() }

func (o *onAttempt) OnEvent(policy.Event)                         {}
func (o *onAttempt) OnAttempt(context.Context, policy.AttemptEnd) { o.f() }

// Two transactions that lock each other's rows: one is the database's victim, and made again.
func TestPostgresDeadlock(t *testing.T) {
	t.Parallel()
	p := pipe(t, retry.Config{MaxAttempts: 5, BaseDelay: time.Millisecond, Budget: retry.NoBudget{}})
	db := pgOpen(t, pgtest.Server(t), 2, p, sqlgate.Config{})
	mustExec(t, db, "DROP TABLE IF EXISTS accounts", "CREATE TABLE accounts (id int PRIMARY KEY, sum int)", "INSERT INTO accounts VALUES (1, 100), (2, 100)")
	var met sync.WaitGroup // the first time, each has its first row before it asks for the second
	met.Add(2)
	move := func(from, to int) error {
		meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
		return sqlgate.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET sum = sum - 10 WHERE id = $1", from); err != nil {
				return err
			}
			meet()
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET sum = sum + 10 WHERE id = $1", to)
			return err
		})
	}
	errs := make(chan error)
	go func() { errs <- move(1, 2) }()
	go func() { errs <- move(2, 1) }()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	s := p.Snapshot()
	require.NotZero(t, s.Attempts[policy.Throttled])
	require.NotZero(t, s.Retries)
	require.Zero(t, figuresOf(p).failures, "contention is no failure")
	var sum int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT min(sum) FROM accounts").Scan(&sum))
	require.Equal(t, 100, sum, "each was done once")
	require.Zero(t, inFlight(p))
}

// Many that count up the same number: those that lose are made again.
func TestPostgresSerializationFailure(t *testing.T) {
	t.Parallel()
	p := pipe(t, retry.Config{MaxAttempts: 100, BaseDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond, Budget: retry.NoBudget{}})
	db := pgOpen(t, pgtest.Server(t), 4, p, sqlgate.Config{MaxWait: time.Minute, MaxWaiters: 100})
	mustExec(t, db, "DROP TABLE IF EXISTS counter", "CREATE TABLE counter (n int)", "INSERT INTO counter VALUES (0)")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				assert.NoError(t, sqlgate.InTx(t.Context(), db, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(ctx context.Context, tx *sqlgate.Tx) error {
					var n int
					if err := tx.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, "UPDATE counter SET n = $1", n+1)
					return err
				}))
			}
		})
	}
	wg.Wait()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n))
	require.Equal(t, 40, n)
	require.Zero(t, figuresOf(p).failures)
	require.Zero(t, inFlight(p))
}

// The server is killed while rows are read and while a transaction is open, and comes back.
func TestPostgresGoneHalfWay(t *testing.T) {
	t.Parallel()
	s := pgtest.Own(t)
	p := pipe(t)
	db := pgOpen(t, s, 3, p, sqlgate.Config{})
	mustExec(t, db, "CREATE TABLE t (n int)")
	rows, err := db.QueryContext(t.Context(), "SELECT repeat('x', 10000) FROM generate_series(1, 100000)")
	require.NoError(t, err)
	require.True(t, rows.Next())
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	s.Kill()
	_, err = drain(rows, nil)
	require.Error(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.Error(t, err)
	require.Error(t, tx.Commit())
	require.Equal(t, figures{calls: 2, failures: 2}, figuresOf(p), "both were successes until then")
	require.Zero(t, inFlight(p))
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.Error(t, err)
	require.NoError(t, s.Restart(t.Context()))
	require.Eventually(t, func() bool {
		_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Zero(t, inFlight(p))
}

// Incident: a pool of ten for a hundred callers. The wait for a connection is seen, bounded, and
// slow enough to open the breaker, though each statement takes 50 ms and none fails; and
// what goes through other pipelines does not notice.
func TestIncidentAggregatorPool(t *testing.T) { //nolint:paralleltest // it measures times
	server := pgtest.Server(t)
	const maxWait = 300 * time.Millisecond
	other := pipe(t)
	others := pgOpen(t, server, 8, other, sqlgate.Config{MaxWait: time.Minute})
	quiet := func() time.Duration { // p99 of the other pipeline
		var wg sync.WaitGroup
		var mu sync.Mutex
		var took []time.Duration
		for range 8 {
			wg.Go(func() {
				for range 6 {
					began := time.Now()
					_, err := others.ExecContext(t.Context(), "SELECT pg_sleep(0.05)")
					d := time.Since(began)
					assert.NoError(t, err)
					mu.Lock()
					took = append(took, d)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	loaded := func() (p99 time.Duration) {
		var reg policy.Registry
		p, err := reg.New("orders", breaker.Config{
			SlowAfter: 150 * time.Millisecond, SlowRatio: 0.5, MinCalls: 20, Window: time.Second, OpenFor: time.Minute,
		})
		require.NoError(t, err)
		db := pgOpen(t, server, 10, p, sqlgate.Config{MaxWait: maxWait, MaxWaiters: 80})
		defer db.Close()
		var enough atomic.Bool
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for !enough.Load() {
					_, _ = db.ExecContext(t.Context(), "SELECT pg_sleep(0.05)")
					time.Sleep(20 * time.Millisecond) // of its own work
				}
			})
		}
		p99 = quiet()
		enough.Store(true)
		wg.Wait()

		s := p.Snapshot()
		b := s.Policies[0].Breaker
		assert.Equal(t, "open", b.State)
		assert.Equal(t, breaker.WhySlowRatio, b.Why)
		assert.Zero(t, b.Failures, "nothing has failed")
		pool := poolOf(p, "connections")
		assert.LessOrEqual(t, pool.Bulkhead.HighWater, 10)
		assert.NotZero(t, pool.Bulkhead.Wait.Count())
		assert.Greater(t, pool.Bulkhead.Wait.Quantile(0.9), 50*time.Millisecond, "some waited for several statements")
		assert.LessOrEqual(t, pool.Bulkhead.MostWaiting, 80)
		assert.NotZero(t, pool.Rejected[policy.ReasonWaiters], "a hundred callers for ten and eighty places")
		assert.Less(t, pool.Bulkhead.Wait.Quantile(1), 10*maxWait, "bounded, on however busy a machine")
		assert.Zero(t, db.Stats().WaitCount)
		assert.Zero(t, inFlight(p))
		metrics := otelx.Values(&reg)["orders"]
		assert.NotZero(t, metrics["bulkhead.wait.count{policy=connections}"], "%v", metrics)
		assert.NotZero(t, metrics["bulkhead.wait.p99{policy=connections}"])
		assert.NotZero(t, metrics["bulkhead.run.count{policy=connections}"])
		assert.NotZero(t, metrics["rejections{policy=connections,reason=waiters}"])
		assert.InDelta(t, 10, metrics["bulkhead.limit{policy=connections}"], 0)
		return p99
	}
	// A machine that is busy with something else may disturb a try, but not three.
	var calm, busy []time.Duration
	for try := range 3 {
		calm, busy = nil, nil
		for range 3 {
			calm = append(calm, quiet())
			busy = append(busy, loaded())
		}
		slices.Sort(calm)
		slices.Sort(busy)
		t.Logf("try %d: p99 of the other pipeline: %v alone, %v beside it", try, calm, busy)
		if float64(busy[1]) <= 1.5*float64(calm[1]) {
			return
		}
	}
	t.Errorf("p99 of the other pipeline: %v alone, %v beside it", calm, busy)
}
