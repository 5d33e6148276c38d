package sqlgate_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/internal/pgserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
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

// connector returns a connector to a server. line may be nil.
func connector(tb testing.TB, s *pgserver.Server, line *pgtest.Line) driver.Connector {
	tb.Helper()
	cfg, err := pgx.ParseConfig(s.DSN())
	require.NoError(tb, err)
	if line != nil {
		cfg.DialFunc = line.Dial
	}
	return stdlib.GetConnector(*cfg)
}

// pgPool returns a pool of a server, of the given size.
func pgPool(tb testing.TB, s *pgserver.Server, conns int, line *pgtest.Line) *sql.DB {
	tb.Helper()
	inner := sql.OpenDB(connector(tb, s, line))
	inner.SetMaxOpenConns(conns)
	inner.SetMaxIdleConns(conns)
	return inner
}

// The suite that every adapter passes, on a PostgreSQL.
func TestConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	server := pgtest.Server(t)
	uses := map[string]func(ctx context.Context, db *sqlgate.DB, c conformance.Case) error{
		"query": func(ctx context.Context, db *sqlgate.DB, c conformance.Case) error {
			return read(c)(db.QueryContext(ctx, statement(c)))
		},
		"exec": func(ctx context.Context, db *sqlgate.DB, c conformance.Case) error {
			_, err := db.ExecContext(ctx, statement(c))
			return err
		},
		"tx": func(ctx context.Context, db *sqlgate.DB, c conformance.Case) error {
			return sqlgate.InTx(ctx, db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
				if c == conformance.Panic {
					panic("boom")
				}
				return read(c)(tx.QueryContext(ctx, statement(c)))
			})
		},
	}
	for name, use := range uses {
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
				db, err := sqlgate.Wrap(pgPool(t, server, 5, line), p, sqlgate.Config{})
				require.NoError(t, err)
				require.NoError(t, db.Unwrap().PingContext(t.Context()))
				if c == conformance.Gone {
					line.Cut(t)
				}
				return func(ctx context.Context) error { return use(ctx, db, c) }, func() { _ = db.Close() }
			}
			conformance.Run(t, a)
		})
	}
}

// read reads rows to their end, or a part of them.
func read(c conformance.Case) func(*sqlgate.Rows, error) error {
	return func(rows *sqlgate.Rows, err error) error {
		if err != nil {
			return err
		}
		if c == conformance.Abandoned {
			rows.Next()
			time.Sleep(time.Millisecond)
			return nil
		}
		_, err = drain(rows, nil)
		return err
	}
}

// The same where the driver is called. A connection that is opened is a call of its own.
func TestConformanceDriver(t *testing.T) { //nolint:paralleltest // it counts goroutines
	server := pgtest.Server(t)
	uses := map[string]func(ctx context.Context, db *sql.DB, c conformance.Case) error{
		"query": func(ctx context.Context, db *sql.DB, c conformance.Case) error {
			rows, err := db.QueryContext(ctx, statement(c))
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
		"exec": func(ctx context.Context, db *sql.DB, c conformance.Case) error {
			_, err := db.ExecContext(ctx, statement(c))
			return err
		},
		"tx": func(ctx context.Context, db *sql.DB, c conformance.Case) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err = tx.ExecContext(ctx, statement(c)); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			a := conformance.Adapter{
				Skip:    map[conformance.Case]string{conformance.Panic: "nothing of the caller's runs under the permits"},
				Figures: map[conformance.Case]conformance.Figures{},
			}
			if name != "query" {
				a.Skip[conformance.Abandoned] = "the answer is taken whole"
			}
			if name == "tx" { // its beginning has settled it, and what follows corrects failures only
				a.Figures[conformance.Canceled] = conformance.Figures{Calls: 1}
			}
			a.Start = func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
				t.Helper()
				line := new(pgtest.Line)
				own, err := sqlgate.Connector(connector(t, server, line), p, sqlgate.DriverConfig{})
				require.NoError(t, err)
				db := sql.OpenDB(own)
				db.SetMaxOpenConns(5)
				conn, err := db.Conn(t.Context()) // counted: it opens one
				require.NoError(t, err)
				require.NoError(t, conn.Close())
				for _, control := range p.Controls() {
					if control.Commander != nil {
						control.Commander.Reset()
					}
				}
				if c == conformance.Gone {
					line.Cut(t)
				}
				return func(ctx context.Context) error { return use(ctx, db, c) }, func() { _ = db.Close() }
			}
			conformance.Run(t, a)
		})
	}
}
