package pgxgate_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
	"github.com/breakwater-go/breakwater/sqlgate/pgxgate"
)

// statement is what the database is asked for in a case.
func statement(c conformance.Case) string {
	switch c {
	case conformance.Failure:
		return "SELECT pg_terminate_backend(pg_backend_pid())"
	case conformance.Slow:
		return "SELECT 1 FROM pg_sleep(0.1)"
	case conformance.Canceled, conformance.Deadline:
		return "SELECT 1 FROM pg_sleep(60)"
	case conformance.Success, conformance.Refused, conformance.Panic, conformance.Abandoned, conformance.Gone:
	}
	return "SELECT generate_series(1, 100000)"
}

// The suite that every adapter passes, on a PostgreSQL.
func TestConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	server := pgtest.Server(t)
	for name, use := range map[string]func(ctx context.Context, pool *pgxgate.Pool, c conformance.Case) error{
		"query": func(ctx context.Context, pool *pgxgate.Pool, c conformance.Case) error {
			rows, err := pool.Query(ctx, statement(c))
			if err != nil {
				return err
			}
			for rows.Next() {
				if c == conformance.Abandoned {
					return nil
				}
			}
			return rows.Err()
		},
		"exec": func(ctx context.Context, pool *pgxgate.Pool, c conformance.Case) error {
			_, err := pool.Exec(ctx, statement(c))
			return err
		},
		"tx": func(ctx context.Context, pool *pgxgate.Pool, c conformance.Case) error {
			return pgxgate.InTx(ctx, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				if c == conformance.Panic {
					panic("boom")
				}
				_, err := tx.Exec(ctx, statement(c))
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := conformance.Adapter{Pool: true, Skip: map[conformance.Case]string{}}
			if name != "query" {
				a.Skip[conformance.Abandoned] = "the answer is taken whole"
			}
			if name != "tx" {
				a.Skip[conformance.Panic] = "nothing of the caller's runs under the permits"
			}
			a.Start = func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
				t.Helper()
				line := new(pgtest.Line)
				pool := open(t, server, 5, line, p, sqlgate.Config{})
				require.NoError(t, pool.Unwrap().Ping(t.Context()))
				if c == conformance.Gone {
					line.Cut(t)
				}
				return func(ctx context.Context) error { return use(ctx, pool, c) }, pool.Close
			}
			conformance.Run(t, a)
		})
	}
}
