package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// MySQLError looks like that of go-sql-driver.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (e *MySQLError) Error() string { return e.Message }

func mysql(n uint16, state string) error {
	e := &MySQLError{Number: n, Message: fmt.Sprintf("Error %d", n)}
	copy(e.SQLState[:], state)
	return e
}

// numberError has a method.
type numberError uint16

func (e numberError) Error() string  { return "number" }
func (e numberError) Number() uint16 { return uint16(e) }

func TestKindOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		kind policy.Kind
	}{
		{nil, policy.Success},
		{sql.ErrNoRows, policy.Success},
		{driver.ErrBadConn, policy.Failure},
		{sql.ErrTxDone, policy.Permanent},
		{sql.ErrConnDone, policy.Permanent},
		{errors.New("sql: expected 2 arguments, got 1"), policy.Permanent},
		{errors.New("failed to encode args[0]: no"), policy.Permanent},
		{errLost, policy.NotRun},
		{context.DeadlineExceeded, policy.NotRun},

		{stateError("08000"), policy.Failure},
		{stateError("08006"), policy.Failure},
		{stateError("22012"), policy.Permanent}, // division by zero
		{stateError("23505"), policy.Permanent}, // unique violation
		{stateError("25P02"), policy.Permanent},
		{stateError("25P03"), policy.Permanent}, // the program was idle within its transaction
		{stateError("25P04"), policy.Timeout},   // transaction_timeout
		{stateError("28P01"), policy.Permanent},
		{stateError("40001"), policy.Throttled},
		{stateError("40P01"), policy.Throttled},
		{stateError("40003"), policy.Failure},
		{stateError("42601"), policy.Permanent}, // syntax
		{stateError("53300"), policy.Busy},      // too many connections
		{stateError("53100"), policy.Busy},      // disk full
		{stateError("55P03"), policy.Throttled}, // lock not available
		{stateError("57014"), policy.Timeout},   // statement_timeout
		{stateError("57P01"), policy.Failure},   // shut down by an administrator
		{stateError("57P02"), policy.Failure},
		{stateError("57P03"), policy.Busy}, // starting up
		{stateError("58030"), policy.Failure},
		{stateError("P0001"), policy.Permanent}, // RAISE
		{stateError("XX000"), policy.Failure},
		{stateError("XX"), policy.NotRun}, // is none
		{fmt.Errorf("wrapped: %w", stateError("53300")), policy.Busy},

		{mysql(1213, "40001"), policy.Throttled},
		{mysql(1205, "HY000"), policy.Throttled},
		{mysql(1040, "08004"), policy.Busy},
		{mysql(1062, "23000"), policy.Permanent},
		{mysql(1043, "08S01"), policy.Failure},
		{mysql(1366, "HY000"), policy.Permanent},
		{mysql(1317, "70100"), policy.Canceled},
		{mysql(3024, "HY000"), policy.Timeout},
		{mysql(1053, "08S01"), policy.Failure},
		{mysql(1064, ""), policy.Permanent},
		{fmt.Errorf("wrapped: %w", mysql(1213, "")), policy.Throttled},
		{numberError(1213), policy.Throttled},
		{numberError(1064), policy.Permanent},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.kind, sqlgate.KindOf(tt.err), "%v", tt.err)
	}
}

// What a call counts as, all things considered.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		cancel bool
		cfg    sqlgate.Config
		kind   policy.Kind
		figs   figures
	}{
		{name: "no error", kind: policy.Success, figs: figures{calls: 1}},
		{name: "lost", err: errLost, kind: policy.Failure, figs: figures{calls: 1, failures: 1}},
		{name: "syntax", err: stateError("42601"), kind: policy.Permanent, figs: figures{calls: 1}},
		{name: "deadlock", err: stateError("40P01"), kind: policy.Throttled},
		{name: "full", err: stateError("53300"), kind: policy.Busy, figs: figures{calls: 1, failures: 1}},
		{name: "canceled by the server", err: stateError("57014"), kind: policy.Timeout, figs: figures{calls: 1, failures: 1}},
		{name: "canceled by the caller", err: stateError("57014"), cancel: true, kind: policy.Canceled},
		{name: "marked", err: policy.AsPermanent(errLost), kind: policy.Permanent, figs: figures{calls: 1}},
		{
			name: "classified", err: stateError("42601"), kind: policy.Busy, figs: figures{calls: 1, failures: 1},
			cfg: sqlgate.Config{Classify: func(error) policy.Kind { return policy.Busy }},
		},
		{
			name: "left alone", err: stateError("42601"), kind: policy.Permanent, figs: figures{calls: 1},
			cfg: sqlgate.Config{Classify: func(error) policy.Kind { return policy.NotRun }},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := pipe(t)
			db := open(t, &world{run: func(context.Context, string) error {
				if tt.cancel {
					cancel()
				}
				return tt.err
			}}, 1, p, tt.cfg)
			defer db.Close()
			_, err := db.ExecContext(ctx, "UPDATE")
			require.ErrorIs(t, err, tt.err)
			s := p.Snapshot()
			require.EqualValues(t, 1, s.Attempts[tt.kind], "%v", s.Attempts)
			require.Equal(t, tt.figs, figuresOf(p))
			require.Zero(t, inFlight(p))
		})
	}
}
