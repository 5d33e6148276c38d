package pgxgate

import (
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// SendBatch sends several statements at once, see [pgxpool.Pool.SendBatch]. The permit and the
// connection are held until Close of the results, or until the end of the transaction that the
// batch begins. The call is a success when the batch has been sent; a statement of it that
// fails corrects that. It is tried again only when there was no connection to send it on.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c := p.gate.NewCall(ctx, "", false, false)
	c.Again = false
	r, err := policy.DoAttempt(ctx, p.gate.Pipeline(), c.Policy(), op{pool: p, call: &c, batch: b}, batchAttempt, discardBatch)
	if err == nil && r == nil {
		err = errNoFallback
	}
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return r
}

func batchAttempt(ctx context.Context, o op, at *policy.Attempt) (*results, error) {
	return keepConn(ctx, o, at, func(ctx context.Context, c *pgxpool.Conn, o op) (*results, bool, error) {
		inner := c.SendBatch(ctx, o.batch)
		if begun := inner.Tx(); begun != nil {
			t := holdTx(ctx, o, at, c, begun)
			return &results{BatchResults: inner, ctx: ctx, session: t.session, tx: t}, true, nil
		}
		l := o.pool.gate.Hold(ctx, at, "batch", false, func() error { c.Release(); return nil })
		r := &results{BatchResults: inner, ctx: ctx, conn: c, session: &core.Session{Gate: o.pool.gate, Ctx: ctx, Lease: l}}
		r.cleanup = runtime.AddCleanup(r, (*core.Lease).Abandon, l)
		return r, true, nil
	})
}

func discardBatch(r *results) {
	if r != nil {
		_ = r.Close()
		if r.tx != nil {
			_ = r.tx.Rollback(context.Background())
		}
	}
}

// results are those of a batch.
type results struct {
	pgx.BatchResults

	ctx     context.Context //nolint:containedctx // it was sent under
	session *core.Session
	tx      *tx           // that the batch has begun
	conn    *pgxpool.Conn // nil for one that is the transaction's
	cleanup runtime.Cleanup
}

func (r *results) Exec() (pgconn.CommandTag, error) {
	defer runtime.KeepAlive(r) // using is not losing
	began := time.Now()
	tag, err := r.BatchResults.Exec()
	r.session.Done(r.ctx, began, err)
	return tag, err
}

func (r *results) Query() (pgx.Rows, error) {
	defer runtime.KeepAlive(r)
	began := time.Now()
	rows, err := r.BatchResults.Query()
	r.session.Done(r.ctx, began, err)
	if err != nil {
		return rows, err
	}
	return &seen{Rows: rows, session: r.session}, nil
}

func (r *results) QueryRow() pgx.Row {
	rows, _ := r.Query() // they have the error
	return row{rows}
}

func (r *results) Tx() pgx.Tx {
	if r.tx == nil {
		return r.BatchResults.Tx()
	}
	return r.tx
}

func (r *results) Close() error {
	defer runtime.KeepAlive(r)
	began := time.Now()
	err := r.BatchResults.Close()
	r.session.Done(r.ctx, began, err)
	if r.conn != nil {
		r.cleanup.Stop()
		r.conn.Release()
		r.conn = nil
		r.session.Lease.End(nil)
	}
	return err
}
