package core

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Session is a connection that is out for more than one statement: of a transaction or by
// itself. Its statements run under its permit, so they cannot wait for one that it holds
// itself.
type Session struct {
	Gate  *Gate
	Ctx   context.Context //nolint:containedctx // what its errors are judged by
	Lease *Lease          // nil for a transaction that is an attempt as a whole
	Owner any             // keeps what the caller has from being found lost while its rows are read

	// For a transaction that is an attempt as a whole: how long the database was at work,
	// what its first failure was, and whether one was contention.
	busy      atomic.Int64
	worst     atomic.Uint32
	contended atomic.Bool
}

// Note takes notice of how something ended.
func (s *Session) Note(err error) {
	if err == nil {
		return
	}
	if s.Lease != nil {
		s.Lease.Note(err)
		return
	}
	if k, _ := s.Gate.Judge(s.Ctx, err); k != policy.Permanent && k != policy.Success {
		s.worst.CompareAndSwap(0, uint32(k)) // what follows may follow from it
	}
	if IsContention(err) {
		s.contended.Store(true)
	}
}

// Done takes notice of a statement that ran under ctx. One that the caller has canceled says
// nothing of the database, in whatever words.
func (s *Session) Done(ctx context.Context, began time.Time, err error) {
	d := time.Since(began)
	s.Gate.Took(d)
	s.busy.Add(int64(d))
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.Note(err)
	}
	if s.Lease != nil {
		s.Lease.handle.Prolong(d) // a statement that is slow makes a slow call of it
	}
}

// Ended ends a transaction that was one attempt, begun at the given time: with err, and after
// its commit was sent or not.
func (s *Session) Ended(ctx context.Context, c *Call, at *policy.Attempt, began time.Time, sent bool, err error) {
	at.Paused(time.Since(began) - time.Duration(s.busy.Load()))
	at.Judging()
	if err != nil {
		s.failed(ctx, c, at, sent, err)
	}
}

// failed classifies a transaction that was not made.
func (s *Session) failed(ctx context.Context, c *Call, at *policy.Attempt, sent bool, err error) {
	sent = sent && !IsRolledBack(err)
	kind, pushback := s.Gate.Judge(ctx, err)
	contended := IsContention(err)
	switch worst := policy.Kind(s.worst.Load()); { //nolint:gosec // it came from one
	case ctx.Err() != nil || sent:
	case worst != policy.NotRun:
		// What a statement said counts, whatever the function has made of it.
		if kind != worst {
			kind, pushback = worst, 0
		}
		contended = contended || s.contended.Load()
	case kind == policy.Failure || kind == policy.Timeout || kind == policy.NotRun || kind == policy.Canceled:
		// No statement failed, so this is about something else that the function has done.
		// The database was reached, and answered.
		kind, pushback = policy.Permanent, 0
	}
	if kind == policy.NotRun {
		kind = policy.Permanent
	}
	if contended && pushback == 0 {
		pushback = wish
	}
	c.Settle(at, kind, pushback, c.Again || !sent || WasAnswered(err))
}

// wish is what a transaction that met another is said to wish for. The database says in its
// own words that the same may succeed now, and a retry policy awaits a throttled dependency's
// wish.
const wish = time.Microsecond
