package pgxgate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
	"github.com/breakwater-go/breakwater/sqlgate/pgxgate"
)

// hooked returns a pool that is guarded from within; line may be nil.
func hooked(tb testing.TB, conns int32, line *pgtest.Line, p *policy.Pipeline, more func(*pgxpool.Config)) (*pgxpool.Pool, *pgxgate.Hook) {
	tb.Helper()
	pc, err := pgxpool.ParseConfig(pgtest.Server(tb).DSN())
	require.NoError(tb, err)
	pc.MaxConns = conns
	if line != nil {
		pc.ConnConfig.DialFunc = line.Dial
	}
	if more != nil {
		more(pc)
	}
	h, err := pgxgate.NewHook(pc, p, pgxgate.HookConfig{})
	require.NoError(tb, err)
	pool, err := pgxpool.NewWithConfig(tb.Context(), pc)
	require.NoError(tb, err)
	return pool, h
}

// counting is a tracer of the program's own.
type counting struct{ queries atomic.Int64 }

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestHook(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := pipe(t)
	own := new(counting)
	var prepared atomic.Int64
	pool, h := hooked(t, 1, nil, p, func(pc *pgxpool.Config) {
		pc.ConnConfig.Tracer = own
		pc.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			return prepared.Add(1) > 1, nil // the first is not good enough
		}
	})
	defer pool.Close()
	_, err := pool.Exec(ctx, "SELECT 1")
	require.NoError(t, err)
	require.EqualValues(t, 2, prepared.Load())
	require.EqualValues(t, 1, own.queries.Load())
	require.Zero(t, inFlight(p))
	calls, failed := failures(p)
	require.EqualValues(t, 1, calls)
	require.Zero(t, failed)

	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	for range 3 {
		_, err = tx.Exec(ctx, "SELECT 1")
		require.NoError(t, err)
		require.Equal(t, 2, inFlight(p), "the permit, and the connection as the snapshot has it")
	}
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, inFlight(p))
	calls, _ = failures(p)
	require.EqualValues(t, 2, calls, "the transaction is one")

	_, err = pool.Exec(ctx, "SELECT 1 / 0")
	require.Error(t, err)
	var n int
	require.ErrorIs(t, pool.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&n), pgx.ErrNoRows)
	b := new(pgx.Batch)
	b.Queue("SELECT 1")
	require.NoError(t, pool.SendBatch(ctx, b).Close())
	_, err = pool.Exec(ctx, "CREATE TEMP TABLE hooked (n int)")
	require.NoError(t, err)
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"hooked"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
	require.NoError(t, err)
	calls, failed = failures(p)
	require.EqualValues(t, 7, calls)
	require.Zero(t, failed)
	c, err := pool.Acquire(ctx)
	require.NoError(t, err)
	c.Release()
	calls, _ = failures(p)
	require.EqualValues(t, 7, calls, "nothing was asked of the database")

	s := h.Snapshot(time.Now()).Bulkhead
	require.Equal(t, 1, s.HighWater)
	require.EqualValues(t, 8, s.Wait.Count())
	require.NotZero(t, s.Run.Count())
	h.Close()
	require.Len(t, p.Snapshot().Policies, 2, "it is not shown any more")
}

// A refusal reaches the caller, and the connection the pool.
func TestHookRefuses(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	pool, _ := hooked(t, 2, nil, p, nil)
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SELECT 1")
	var re *policy.RejectedError
	require.ErrorAs(t, err, &re)
	require.Equal(t, policy.ReasonConcurrency, re.Reason)
	require.EqualValues(t, 1, p.Snapshot().Attempts[policy.NotRun])
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = pool.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
}

// A wait that is long is slow to the breaker, and one in vain is counted.
func TestHookSeesTheWait(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", breaker.Config{MinCalls: 1000, SlowAfter: 50 * time.Millisecond})
	require.NoError(t, err)
	pool, h := hooked(t, 1, nil, p, nil)
	defer pool.Close()
	ctx := t.Context()
	c, err := pool.Acquire(ctx)
	require.NoError(t, err)
	done := make(chan error)
	go func() { _, err := pool.Exec(ctx, "SELECT 1"); done <- err }()
	require.Eventually(t, func() bool { return h.Snapshot(time.Now()).Bulkhead.Waiting == 1 }, 10*time.Second, time.Millisecond)
	short, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
	defer cancel()
	_, err = pool.Exec(short, "SELECT 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Release()
	require.NoError(t, <-done)
	b := p.Snapshot().Policies[0].Breaker
	require.EqualValues(t, 2, b.Calls)
	require.EqualValues(t, 1, b.Failures, "the deadline")
	require.EqualValues(t, 1, b.Slow, "the other, which waited for as long")
	require.Equal(t, 2, h.Snapshot(time.Now()).Bulkhead.MostWaiting)
}

func TestHookOnAPoolOfWorkers(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	pc, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	_, err = pgxgate.NewHook(pc, p, pgxgate.HookConfig{})
	require.ErrorContains(t, err, "db.pool.policies")
	require.NoError(t, p.Close(t.Context()))
	q := pipe(t)
	_, err = pgxgate.NewHook(pc, q, pgxgate.HookConfig{})
	require.NoError(t, err)
	_, err = pgxgate.NewHook(pc, q, pgxgate.HookConfig{})
	require.ErrorContains(t, err, "db.connections.Name")
}

// The suite that every adapter passes, by the hooks of the pool.
func TestConformanceHook(t *testing.T) { //nolint:paralleltest // it counts goroutines
	pgtest.Server(t) // it has goroutines of its own
	conformance.Run(t, conformance.Adapter{
		Skip: map[conformance.Case]string{
			conformance.Panic:     "nothing of the caller's runs under the permits",
			conformance.Abandoned: "pgx does not end rows with their context",
		},
		Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
			t.Helper()
			line := new(pgtest.Line)
			pool, _ := hooked(t, 5, line, p, nil)
			warm, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			warm.Release()
			if c == conformance.Gone {
				line.Cut(t)
			}
			return func(ctx context.Context) error {
				_, err := pool.Exec(ctx, statement(c))
				if errors.Is(err, pgx.ErrNoRows) {
					return nil
				}
				return err
			}, pool.Close
		},
	})
}
