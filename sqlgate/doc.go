// Package sqlgate puts a pipeline in front of a database that is used through database/sql,
// and a bound in front of its pool of connections.
//
//	db.SetMaxOpenConns(10)
//	orders, err := sqlgate.Wrap(db, pipeline, sqlgate.Config{MaxWait: 200 * time.Millisecond})
//	rows, err := orders.QueryContext(ctx, "SELECT id FROM orders WHERE shop = $1", shop)
//
// [DB] has the methods of [sql.DB] that take a context. Each is a call. The wait for a
// connection is part of it: it is bounded ([Config] MaxWait, MaxWaiters), measured, and slow
// to the breaker if it is long. What waited too long, or found too many waiting, gets a
// [*policy.RejectedError]. The time of the statement alone is measured beside it.
//
// # How long a permit is held
//
// As long as the connection is out: of [DB.QueryContext] until the rows are closed or read to
// their end, of [DB.QueryRowContext] until [Row.Scan], of [DB.BeginTx] until Commit or
// Rollback, of [DB.Conn] until Close. Statements of a [Tx] or a [Conn] take none of their
// own, and are never refused or tried again. Rows, transactions and connections whose context
// ends, or that are lost, are ended.
//
// # What is tried again
//
// Nothing that may have happened: a statement only if it says that it may be done twice
// ([Config] Idempotent, policy.Call.Idempotent), or if it surely was not run, since there was
// no connection to run it on. A transaction as a whole, by [InTx], also when it met another
// (a serialization failure, a deadlock).
//
// # What errors mean
//
// [KindOf] has the table. It knows SQLSTATE (pgx, lib/pq) and the numbers of MySQL without
// importing a driver.
//
// # Those who need a *sql.DB
//
// [Connector] and [Driver] guard each statement where the driver is called, for programs that
// cannot change the type: an ORM, generated code. There the wait for a connection is not
// seen. pgx by itself, without database/sql, is in package pgxgate.
package sqlgate
