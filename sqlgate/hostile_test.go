package sqlgate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// A fallback that answers with nil gives nobody something to stumble over.
func TestFallbackOfNil(t *testing.T) {
	t.Parallel()
	w := &world{run: func(context.Context, string) error { return errLost }}
	p := pipe(t, fallback.Func(func(context.Context, policy.FailedCall) (any, error) { return nil, nil }))
	db := open(t, w, 1, p, sqlgate.Config{})
	defer db.Close()
	stmt, err := db.PrepareContext(t.Context(), "X")
	assert.Nil(t, stmt)
	require.Error(t, err)
	res, err := db.ExecContext(t.Context(), "X")
	assert.Nil(t, res)
	require.Error(t, err)
	_, err = db.QueryContext(t.Context(), "X")
	require.Error(t, err)
	_, err = db.BeginTx(t.Context(), nil)
	require.Error(t, err)
	assert.Zero(t, inFlight(p))
}

// The context with which a connection was taken says nothing about what is done with it
// later.
func TestConnOutlivesTheContextOfItsTaking(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		err      error
		own      bool // the statement's own context ends
		failures uint64
	}{
		{name: "lost", err: errLost, failures: 1},
		{name: "the caller's fault", err: stateError("23505")},
		{name: "canceled by the caller", err: context.Canceled, own: true},
		{name: "canceled by the caller, in the server's words", err: stateError("57014"), own: true},
	} {
		for _, deadline := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := &world{run: func(context.Context, string) error { return tt.err }}
					p := pipe(t)
					db := open(t, w, 1, p, sqlgate.Config{})
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					c, err := db.Conn(ctx)
					require.NoError(t, err)
					if deadline {
						time.Sleep(2 * time.Second)
					} else {
						cancel()
					}
					of, end := context.WithCancel(t.Context())
					defer end()
					if tt.own {
						end()
					}
					_, err = c.ExecContext(of, "X")
					require.ErrorIs(t, err, tt.err)
					require.NoError(t, c.Close())
					assert.Equal(t, figures{1, tt.failures, 0}, figuresOf(p))
					assert.Zero(t, inFlight(p))
					require.NoError(t, db.Close())
				})
			})
		}
	}
}

// A statement of a transaction whose own context the caller ends says nothing of the database.
func TestTxWithAStatementThatTheCallerCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t)
		w := &world{run: func(ctx context.Context, q string) error {
			if q == "X" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		db := open(t, w, 1, p, sqlgate.Config{})
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err = tx.ExecContext(ctx, "X")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, tx.Rollback())
		assert.Equal(t, figures{1, 0, 0}, figuresOf(p))
		assert.Zero(t, inFlight(p))
		require.NoError(t, db.Close())
	})
}
