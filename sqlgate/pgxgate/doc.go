// Package pgxgate puts a pipeline in front of a pool of pgx, as package sqlgate does for a
// pool of database/sql.
//
//	orders, err := pgxgate.Wrap(pool, pipeline, sqlgate.Config{MaxWait: 200 * time.Millisecond})
//	rows, err := orders.Query(ctx, "SELECT id FROM orders WHERE shop = $1", shop)
//
// What [Pool] returns are pgx's interfaces (pgx.Rows, pgx.Row, pgx.Tx, pgx.BatchResults), so
// code that asks for those, such as that of sqlc, takes it in place of a *pgxpool.Pool.
//
// The wait for a connection, how long permits are held, what is tried again and what errors
// mean are as in package sqlgate. Different is, because pgx is:
//
//   - [Pool.Query] waits for the first row, so that an error of the statement is that of the
//     call. It is in the rows, too, as pgx has it
//   - the context of [Pool.Begin] is for beginning only: it does not end the transaction
//   - a batch is a call that has been answered when it was sent; what its statements
//     fail with, corrects that
//
// [NewHook] guards a pool by pgxpool's own hooks, for programs that need a *pgxpool.Pool. There
// the wait for a connection is seen and not bounded.
package pgxgate
