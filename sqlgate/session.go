package sqlgate

import (
	"context"
	"database/sql"
	"time"

	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// sessionRows are rows under the permit of a transaction or a connection.
func sessionRows(ctx context.Context, s *core.Session, began time.Time, rows *sql.Rows, err error) (*Rows, error) {
	s.Done(ctx, began, err)
	if err != nil {
		return nil, err
	}
	return &Rows{rows: rows, session: s}, nil
}
