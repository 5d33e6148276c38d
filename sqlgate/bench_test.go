package sqlgate_test

import (
	"context"
	"testing"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// guarded returns a pool over a database in memory whose answers take no time, behind a
// bulkhead and a breaker.
func guarded(tb testing.TB) *sqlgate.DB {
	tb.Helper()
	p, err := policy.New("db", bulkhead.Semaphore{Limit: 100}, breaker.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return open(tb, &world{rows: 1, quiet: true}, 10, p, sqlgate.Config{})
}

// The same statements by database/sql alone, and through the pipeline. The contexts are those
// of requests: they can be canceled.
func BenchmarkExec(b *testing.B) {
	db := guarded(b)
	defer db.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := db.Unwrap().ExecContext(ctx, "X"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := db.ExecContext(ctx, "X"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkQueryRow(b *testing.B) {
	db := guarded(b)
	defer db.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var n int
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := db.Unwrap().QueryRowContext(ctx, "X").Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := db.QueryRowContext(ctx, "X").Scan(&n); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkInTx(b *testing.B) {
	db := guarded(b)
	defer db.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tx, err := db.Unwrap().BeginTx(ctx, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = tx.ExecContext(ctx, "X"); err != nil {
				b.Fatal(err)
			}
			if err = tx.Commit(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := sqlgate.InTx(ctx, db, nil, oneStatement); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func oneStatement(ctx context.Context, tx *sqlgate.Tx) error {
	_, err := tx.ExecContext(ctx, "X")
	return err
}
