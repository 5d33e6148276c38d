package sqlgate

import (
	"context"
	"database/sql"
	"time"

	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// Stmt is a prepared statement, see [sql.Stmt]. One of a [DB] is a call each time it is run.
// One of a [Tx] or a [Conn] runs under the permit of that. It is safe for concurrent use.
type Stmt struct {
	stmt    *sql.Stmt
	db      *DB
	text    string
	session *core.Session // nil for one of a DB
}

// Close ends the statement.
func (s *Stmt) Close() error { return s.stmt.Close() }

// ExecContext is [DB.ExecContext] for the statement.
func (s *Stmt) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	if s.session == nil {
		return s.db.exec(ctx, op{db: s.db, stmt: s.stmt, text: s.text, args: args})
	}
	began := time.Now()
	res, err := s.stmt.ExecContext(ctx, args...)
	s.session.Done(ctx, began, err)
	return res, err
}

// QueryContext is [DB.QueryContext] for the statement.
func (s *Stmt) QueryContext(ctx context.Context, args ...any) (*Rows, error) {
	if s.session == nil {
		return s.db.query(ctx, op{db: s.db, stmt: s.stmt, text: s.text, args: args})
	}
	began := time.Now()
	rows, err := s.stmt.QueryContext(ctx, args...) //nolint:sqlclosecheck // by who gets it
	return sessionRows(ctx, s.session, began, rows, err)
}

// QueryRowContext is [DB.QueryRowContext] for the statement.
func (s *Stmt) QueryRowContext(ctx context.Context, args ...any) *Row {
	return newRow(s.QueryContext(ctx, args...))
}
