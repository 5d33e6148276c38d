package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
	"github.com/breakwater-go/breakwater/sqlgate"
)

// memory is a database without a server; yours is sql.Open and a driver.
func memory(w *world) *sql.DB { return sql.OpenDB(w) }

func ExampleWrap() {
	orders, err := policy.New("orders",
		breaker.Config{SlowAfter: 500 * time.Millisecond},
		retry.Config{MaxAttempts: 3},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	inner := memory(&world{rows: 3})
	inner.SetMaxOpenConns(1)
	db, err := sqlgate.Wrap(inner, orders, sqlgate.Config{MaxWait: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	ctx := context.Background()
	rows, err := db.QueryContext(ctx, "SELECT id FROM orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rows.Close()

	// The rows have the only connection: another statement waits for it, not for ever.
	_, err = db.ExecContext(ctx, "DELETE FROM carts")
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println(re)
	}
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			fmt.Println(err)
		}
		fmt.Println("order", id)
	}
	fmt.Println("waits:", db.Snapshot(time.Now()).Bulkhead.Wait.Count())
	// Output:
	// orders: rejected by connections (wait)
	// order 1
	// order 2
	// order 3
	// waits: 1
}

func ExampleInTx() {
	orders, err := policy.New("orders", retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The database gives the first transaction up, since it met another.
	inner := memory(&world{run: failing(1, "UPDATE accounts", stateError("40001"))})
	inner.SetMaxOpenConns(10)
	db, err := sqlgate.Wrap(inner, orders, sqlgate.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	attempts := 0
	err = sqlgate.InTx(context.Background(), db, nil, func(ctx context.Context, tx *sqlgate.Tx) error {
		attempts++
		_, err := tx.ExecContext(ctx, "UPDATE accounts")
		return err
	})
	fmt.Println(attempts, err)
	// Output: 2 <nil>
}
