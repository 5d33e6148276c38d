package sqlgate

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// session is a connection that is out for more than one statement: of a transaction or by
// itself. Its statements run under its permit, so they cannot wait for one that it holds
// itself.
type session struct {
	gate  *core.Gate
	ctx   context.Context //nolint:containedctx // what its errors are judged by
	lease *core.Lease     // nil for a transaction that is an attempt as a whole
	owner any             // keeps what the caller has from being found lost while its rows are read

	// For a transaction that is an attempt as a whole: how long the database was at work,
	// what its first failure was, and whether one was contention.
	busy      atomic.Int64
	worst     atomic.Uint32
	contended atomic.Bool
}

// note takes notice of how something ended.
func (s *session) note(err error) {
	if err == nil {
		return
	}
	if s.lease != nil {
		s.lease.Note(err)
		return
	}
	if k, _ := s.gate.Judge(s.ctx, err); k != policy.Permanent && k != policy.Success {
		s.worst.CompareAndSwap(0, uint32(k)) // what follows may follow from it
	}
	if core.IsContention(err) {
		s.contended.Store(true)
	}
}

// done takes notice of a statement.
func (s *session) done(began time.Time, err error) {
	d := time.Since(began)
	s.gate.Took(d)
	s.busy.Add(int64(d))
	s.note(err)
}

func (s *session) rows(began time.Time, rows *sql.Rows, err error) (*Rows, error) {
	s.done(began, err)
	if err != nil {
		return nil, err
	}
	return &Rows{rows: rows, session: s}, nil
}
