package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// failing returns a statement's end that is err for the first n times.
func failing(n int64, on string, err error) func(context.Context, string) error {
	var seen atomic.Int64
	return func(_ context.Context, q string) error {
		if q == on && seen.Add(1) <= n {
			return err
		}
		return nil
	}
}

var again = retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond, Budget: retry.NoBudget{}}

// Nothing that may have happened is done twice, unless it says that it may be.
func TestCaseB61StatementsAreNotRepeated(t *testing.T) {
	t.Parallel()
	marked := func(ctx context.Context) context.Context {
		return policy.WithCall(ctx, policy.Call{Idempotent: true})
	}
	tests := []struct {
		name string
		err  error
		ctx  func(context.Context) context.Context
		cfg  sqlgate.Config
		runs int
		stop policy.Stop
	}{
		{name: "may have happened", err: errLost, runs: 1, stop: policy.StopCall},
		{name: "timeout", err: stateError("57014"), runs: 1, stop: policy.StopCall},
		{name: "marked by the context", err: errLost, ctx: marked, runs: 2},
		{name: "marked by the query", err: errLost, runs: 2, cfg: sqlgate.Config{Idempotent: func(q string) bool { return q == "X" }}},
		{name: "another query is", err: errLost, runs: 1, stop: policy.StopCall, cfg: sqlgate.Config{Idempotent: func(q string) bool { return q != "X" }}},
		{name: "would not change", err: stateError("23505"), ctx: marked, runs: 1, stop: policy.StopOutcome},
		{name: "contention", err: stateError("40001"), ctx: marked, runs: 2},
		{name: "contention, not marked", err: stateError("40001"), runs: 1, stop: policy.StopOutcome},
		{name: "no connection", err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}, runs: 2},
		{name: "too many connections", err: stateError("53300"), runs: 2},
		{name: "starting up", err: stateError("57P03"), runs: 2},
		{name: "nothing was sent", err: safeError{}, runs: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, how := range []string{"exec", "query", "statement"} {
				ctx := t.Context()
				if tt.ctx != nil {
					ctx = tt.ctx(ctx)
				}
				p := pipe(t, again)
				w := &world{run: failing(1, "X", tt.err)}
				db := open(t, w, 1, p, tt.cfg)
				var err error
				switch how {
				case "exec":
					_, err = db.ExecContext(ctx, "X")
				case "query":
					_, err = drain(db.QueryContext(ctx, "X"))
				case "statement":
					s, perr := db.PrepareContext(ctx, "X")
					require.NoError(t, perr)
					_, err = s.ExecContext(ctx)
					require.NoError(t, s.Close())
				}
				require.Equal(t, tt.runs, w.count("X"), how)
				if tt.runs == 1 {
					require.ErrorIs(t, err, tt.err)
					require.EqualValues(t, 1, stops(p)[tt.stop], "%s: %v", how, stops(p))
				} else {
					require.NoError(t, err)
				}
				require.Zero(t, inFlight(p))
				require.NoError(t, db.Close())
			}
		})
	}
}

type safeError struct{}

func (safeError) Error() string     { return "write failed" }
func (safeError) SafeToRetry() bool { return true }

func stops(p *policy.Pipeline) (n [policy.NumStops]uint64) {
	for _, ps := range p.Snapshot().Policies {
		if ps.Retry != nil {
			n = ps.Retry.Stopped
		}
	}
	return n
}

// On a pool whose callers may leave it is the same.
func TestStatementsAreNotRepeatedOnAPool(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", again, bulkhead.Pool{Workers: 2})
	require.NoError(t, err)
	w := &world{run: failing(1, "X", errLost), rows: 1}
	db := open(t, w, 1, p, sqlgate.Config{})
	_, err = db.ExecContext(t.Context(), "X")
	require.ErrorIs(t, err, errLost)
	require.Equal(t, 1, w.count("X"))
	n, err := drain(db.QueryContext(t.Context(), "X"))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, db.Close())
	require.NoError(t, p.Close(t.Context()))
}

// What begins something has done nothing yet.
func TestBeginningsAreRepeated(t *testing.T) {
	t.Parallel()
	p := pipe(t, again)
	w := &world{run: failing(2, "begin", errLost)}
	db := open(t, w, 1, p, sqlgate.Config{})
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 3, w.count("begin"))
	require.NoError(t, tx.Rollback())

	w.run = failing(1, "prepare X", errLost)
	s, err := db.PrepareContext(t.Context(), "X")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	w.run = failing(1, "ping", errLost)
	require.NoError(t, db.PingContext(t.Context()))
	require.Zero(t, inFlight(p))
}

// A statement of a transaction is never repeated, nor is one that is refused.
func TestNothingIsRepeatedInATransaction(t *testing.T) {
	t.Parallel()
	ctx := policy.WithCall(t.Context(), policy.Call{Idempotent: true})
	p := pipe(t, again)
	w := &world{run: failing(1, "X", stateError("40001"))}
	db := open(t, w, 1, p, sqlgate.Config{Idempotent: func(string) bool { return true }})
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "X")
	require.ErrorIs(t, err, stateError("40001"))
	require.NoError(t, tx.Rollback())
	require.Equal(t, []string{"begin", "X", "rollback"}, w.said())
	require.Equal(t, figures{calls: 1}, figuresOf(p), "contention is no failure")

	// The breaker is forced open in the middle: the transaction may go on to its end.
	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for _, c := range p.Controls() {
		if c.Commander != nil {
			c.Commander.ForceOpen("by hand", time.Minute)
		}
	}
	_, err = tx.ExecContext(ctx, "Y")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.Zero(t, inFlight(p))
}

// With as many transactions as connections, nobody waits for a second permit.
func TestTransactionsDoNotLockEachOtherOut(t *testing.T) {
	t.Parallel()
	p := pipe(t)
	db := open(t, &world{rows: 1}, 4, p, sqlgate.Config{MaxWait: time.Minute, MaxWaiters: 100})
	defer db.Close()
	done := make(chan error)
	for range 16 {
		go func() {
			done <- sqlgate.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
				for range 5 {
					if _, err := drain(tx.QueryContext(ctx, "SELECT")); err != nil {
						return err
					}
				}
				return nil
			})
		}()
	}
	for range 16 {
		require.NoError(t, <-done)
	}
}

// A refusal is never an error that database/sql itself repeats.
func TestRefusalIsNotABadConnection(t *testing.T) {
	t.Parallel()
	p, err := policy.New("db", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	w := &world{rows: 1}
	db := open(t, w, 5, p, sqlgate.Config{})
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "X")
	require.ErrorIs(t, err, policy.ErrRejected)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	require.Equal(t, []string{"SELECT"}, w.said())
	require.NoError(t, rows.Close())
}

func TestInTx(t *testing.T) {
	t.Parallel()
	mine := errors.New("not enough stock")
	run := func(queries ...string) func(context.Context, *sqlgate.Tx) error {
		return func(ctx context.Context, tx *sqlgate.Tx) error {
			for _, q := range queries {
				if _, err := tx.ExecContext(ctx, q); err != nil {
					return err
				}
			}
			return nil
		}
	}
	marked := policy.WithCall(context.Background(), policy.Call{Idempotent: true}) //nolint:usetesting // a table's
	tests := []struct {
		name    string
		ctx     context.Context //nolint:containedctx // a table's
		run     func(context.Context, string) error
		fn      func(context.Context, *sqlgate.Tx) error
		err     error
		said    []string
		kinds   map[policy.Kind]int // of attempts
		figs    figures
		nothing bool // is tried again
	}{
		{
			name: "commits", fn: run("X", "Y"), said: []string{"begin", "X", "Y", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1}, figs: figures{calls: 1},
		},
		{
			name: "serialization failure", run: failing(2, "Y", stateError("40001")), fn: run("X", "Y"),
			said:  []string{"begin", "X", "Y", "rollback", "begin", "X", "Y", "rollback", "begin", "X", "Y", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Throttled: 2}, figs: figures{calls: 1},
		},
		{
			name: "deadlock", run: failing(1, "X", stateError("40P01")), fn: run("X"),
			said:  []string{"begin", "X", "rollback", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Throttled: 1}, figs: figures{calls: 1},
		},
		{
			name: "deadlock of MySQL", run: failing(1, "X", mysql(1213, "40001")), fn: run("X"),
			said:  []string{"begin", "X", "rollback", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Throttled: 1}, figs: figures{calls: 1},
		},
		{
			name: "every time", run: failing(9, "X", stateError("40P01")), fn: run("X"), err: stateError("40P01"),
			said:  []string{"begin", "X", "rollback", "begin", "X", "rollback", "begin", "X", "rollback"},
			kinds: map[policy.Kind]int{policy.Throttled: 3},
		},
		{
			name: "at commit", run: failing(1, "commit", stateError("40001")), fn: run("X"),
			said:  []string{"begin", "X", "commit", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Throttled: 1}, figs: figures{calls: 1},
		},
		{
			name: "hidden by the function", run: failing(1, "X", stateError("40001")),
			fn: func(ctx context.Context, tx *sqlgate.Tx) error {
				if run("X")(ctx, tx) != nil {
					return mine
				}
				return nil
			},
			said:  []string{"begin", "X", "rollback", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Throttled: 1}, figs: figures{calls: 1},
		},
		{
			name: "lost before commit", run: failing(1, "X", errLost), fn: run("X"),
			said:  []string{"begin", "X", "rollback", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Failure: 1}, figs: figures{calls: 2, failures: 1},
		},
		{
			name: "lost at the beginning", run: failing(1, "begin", errLost), fn: run("X"),
			said:  []string{"begin", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Failure: 1}, figs: figures{calls: 2, failures: 1},
		},
		{
			name: "lost at commit", run: failing(1, "commit", errLost), fn: run("X"), err: errLost, said: []string{"begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Failure: 1}, figs: figures{calls: 1, failures: 1},
		},
		{
			name: "lost at commit, and may happen twice", ctx: marked, run: failing(1, "commit", errLost), fn: run("X"),
			said:  []string{"begin", "X", "commit", "begin", "X", "commit"},
			kinds: map[policy.Kind]int{policy.Success: 1, policy.Failure: 1}, figs: figures{calls: 2, failures: 1},
		},
		{
			name: "constraint at commit", run: failing(1, "commit", stateError("23505")), fn: run("X"), err: stateError("23505"),
			said: []string{"begin", "X", "commit"}, kinds: map[policy.Kind]int{policy.Permanent: 1}, figs: figures{calls: 1},
		},
		{
			name: "the function's own error", fn: func(context.Context, *sqlgate.Tx) error { return mine }, err: mine,
			said: []string{"begin", "rollback"}, kinds: map[policy.Kind]int{policy.Permanent: 1}, figs: figures{calls: 1},
		},
		{
			name: "a refusal of something else", fn: func(context.Context, *sqlgate.Tx) error { return &policy.RejectedError{Err: mine} }, err: mine,
			said: []string{"begin", "rollback"}, kinds: map[policy.Kind]int{policy.Permanent: 1}, figs: figures{calls: 1},
		},
		{
			name: "a timeout of something else", fn: func(context.Context, *sqlgate.Tx) error { return context.DeadlineExceeded }, err: context.DeadlineExceeded,
			said: []string{"begin", "rollback"}, kinds: map[policy.Kind]int{policy.Permanent: 1}, figs: figures{calls: 1},
		},
		{
			name: "marked by the function", fn: func(context.Context, *sqlgate.Tx) error { return policy.AsBusy(mine, -1) }, err: mine,
			said: []string{"begin", "rollback"}, kinds: map[policy.Kind]int{policy.Busy: 1}, figs: figures{calls: 1, failures: 1},
		},
		{
			name: "constraint", run: failing(1, "X", stateError("23505")), fn: run("X"), err: stateError("23505"),
			said: []string{"begin", "X", "rollback"}, kinds: map[policy.Kind]int{policy.Permanent: 1}, figs: figures{calls: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			p := pipe(t, again)
			w := &world{run: tt.run}
			db := open(t, w, 1, p, sqlgate.Config{})
			defer db.Close()
			err := sqlgate.InTx(ctx, db, nil, tt.fn)
			if tt.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tt.err)
			}
			require.Equal(t, tt.said, w.said())
			got := map[policy.Kind]int{}
			for k, n := range p.Snapshot().Attempts {
				if n > 0 {
					got[policy.Kind(k)] = int(n)
				}
			}
			require.Equal(t, tt.kinds, got)
			require.Equal(t, tt.figs, figuresOf(p))
			require.Zero(t, inFlight(p))
			require.Zero(t, db.Stats().InUse)
		})
	}
}

// The time of a transaction is the database's, without what the program does in between, and
// a breaker does not take a slow program for a slow database.
func TestInTxCountsTheDatabasesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t)
		db := open(t, &world{run: func(context.Context, string) error { time.Sleep(100 * time.Millisecond); return nil }}, 1, p, sqlgate.Config{})
		defer db.Close()
		think := time.Duration(0)
		fn := func(ctx context.Context, tx *sqlgate.Tx) error {
			time.Sleep(think)
			_, err := tx.ExecContext(ctx, "X")
			return err
		}
		think = time.Minute
		require.NoError(t, sqlgate.InTx(t.Context(), db, nil, fn))
		s := p.Snapshot()
		require.Equal(t, 300*time.Millisecond, s.Latency.Sum, "begin, the statement and commit")
		require.Equal(t, time.Minute+300*time.Millisecond, s.CallLatency.Sum)
		require.Equal(t, figures{calls: 1}, figuresOf(p))
		require.EqualValues(t, 3, poolOf(p, "connections").Bulkhead.Run.Count())

		// Its attempt's timeout bounds all of it.
		u, err := p.Prepare(policy.Timeouts{Attempt: time.Second})
		require.NoError(t, err)
		require.NoError(t, u.Apply())
		require.ErrorIs(t, sqlgate.InTx(t.Context(), db, nil, fn), context.DeadlineExceeded)
		require.EqualValues(t, 1, p.Snapshot().Attempts[policy.Timeout])
		synctest.Wait()
	})
}

// A statement that is slow makes a slow call of a transaction whose beginning was quick, and of
// a connection; the program's own time does not.
func TestSlowStatementsOfTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, slow := range map[string]bool{"QUICK": false, "SLOW": true} {
			w := &world{run: func(_ context.Context, q string) error {
				if q == "SLOW" {
					time.Sleep(2 * time.Second)
				}
				return nil
			}}
			want := figures{calls: 1}
			if slow {
				want.slow = 1
			}
			p := pipe(t)
			db := open(t, w, 1, p, sqlgate.Config{})
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			for range 2 {
				_, err = tx.ExecContext(t.Context(), name)
				require.NoError(t, err)
			}
			require.NoError(t, tx.Commit())
			require.Equal(t, want, figuresOf(p), name)
			require.NoError(t, db.Close())

			p = pipe(t)
			db = open(t, w, 1, p, sqlgate.Config{})
			c, err := db.Conn(t.Context())
			require.NoError(t, err)
			_, err = c.ExecContext(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.Equal(t, want, figuresOf(p), name)
			require.NoError(t, db.Close())

			p = pipe(t)
			guarded := guardedAt(t, w, p, sqlgate.DriverConfig{})
			inTx, err := guarded.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = inTx.ExecContext(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, inTx.Rollback())
			want.calls++ // the opening of the connection
			require.Equal(t, want, figuresOf(p), name)
			require.NoError(t, guarded.Close())
		}
	})
}

// A query that may be hedged is, and the one that lost gives back all that it had.
func TestHedgedQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, retry.Hedge{Delay: 100 * time.Millisecond})
		var first atomic.Bool
		w := &world{rows: 2, run: func(ctx context.Context, _ string) error {
			if first.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		db := open(t, w, 2, p, sqlgate.Config{Idempotent: func(string) bool { return true }})
		n, err := drain(db.QueryContext(t.Context(), "SELECT"))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		synctest.Wait()
		require.Zero(t, inFlight(p))
		require.Equal(t, 2, w.count("SELECT"))

		// Transactions are not.
		first.Store(false)
		ctx, cancel := context.WithTimeout(policy.WithCall(t.Context(), policy.Call{Idempotent: true}), time.Second)
		defer cancel()
		err = sqlgate.InTx(ctx, db, &sql.TxOptions{}, func(context.Context, *sqlgate.Tx) error { return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, w.count("begin"))
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}
