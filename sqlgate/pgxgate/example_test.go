package pgxgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/pgxgate"
)

func ExampleWrap() {
	ctx := context.Background()
	orders, err := policy.New("orders", breaker.Config{}, policy.Timeouts{Attempt: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	// There is nobody at this address; yours has a PostgreSQL. No connection is made yet.
	inner, err := pgxpool.New(ctx, "postgres://127.0.0.1:1/orders?sslmode=disable&pool_max_conns=10")
	if err != nil {
		fmt.Println(err)
		return
	}
	pool, err := pgxgate.Wrap(inner, orders, sqlgate.Config{MaxWait: 200 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	var n int
	err = pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&n)
	fmt.Println(err != nil, orders.Snapshot().Attempts[policy.Failure])
	// Output: true 1
}
