package core

import (
	"context"
	"sync/atomic"

	"github.com/breakwater-go/breakwater/policy"
)

// Lease is what is held until a result has been read, or a transaction has ended: a
// connection, and the attempt with its permits. It must not refer to what the caller has,
// or the garbage collector could not tell that this is lost.
type Lease struct {
	gate   *Gate
	ctx    context.Context //nolint:containedctx // the attempt's, by which its end is judged
	what   string
	handle policy.Handle
	close  func() error // ends what the connection is used for
	ended  atomic.Bool
	stop   func() bool // of the watch over the context
}

// Hold keeps the connection and the attempt until the lease ends. closing is called when the
// context ends or the caller has lost what it got: it must be safe at any time. With watch
// the lease ends with ctx; without, ctx was for the beginning only, and nothing is judged by it.
func (g *Gate) Hold(ctx context.Context, at *policy.Attempt, what string, watch bool, closing func() error) *Lease {
	if !watch {
		ctx = context.WithoutCancel(ctx)
	}
	l := &Lease{gate: g, ctx: ctx, what: what, handle: at.Hold(), close: closing}
	if watch && ctx.Done() != nil {
		l.stop = context.AfterFunc(ctx, func() {
			_ = l.close()
			if l.ended.CompareAndSwap(false, true) {
				l.release(ctx.Err()) // stop may not have been set yet
			}
		})
	}
	return l
}

// Cause returns why the context has ended by which the lease was watched.
func (l *Lease) Cause() error { return l.ctx.Err() }

// Note corrects the success that the attempt has been settled as, if err says that the
// database has failed.
func (l *Lease) Note(err error) {
	if err == nil {
		return
	}
	if k, _ := l.gate.Judge(l.ctx, err); k.IsFailure() {
		l.handle.Amend(k)
	}
}

// End gives back what is held, once. err is how it ended.
func (l *Lease) End(err error) {
	if !l.ended.CompareAndSwap(false, true) {
		return
	}
	if l.stop != nil {
		l.stop()
	}
	l.release(err)
}

func (l *Lease) release(err error) {
	defer func() { // also when a classifier panics
		l.gate.Give()
		l.handle.Release()
	}()
	l.Note(err)
}

// Abandon ends a lease whose holder is lost. It is called by the runtime, on a goroutine that
// others wait for, and closing may take as long as the database does.
func (l *Lease) Abandon() {
	if !l.ended.CompareAndSwap(false, true) {
		return
	}
	if l.stop != nil {
		l.stop()
	}
	go func() {
		defer func() {
			l.gate.Give()
			l.handle.Abandon()
			if l.gate.cfg.OnAbandoned != nil {
				defer func() { _ = recover() }() // it must not end the process
				l.gate.cfg.OnAbandoned(l.what)
			}
		}()
		_ = l.close()
	}()
}
