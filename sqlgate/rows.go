package sqlgate

import (
	"database/sql"
	"errors"
	"runtime"

	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

var errNoFallback = errors.New("sqlgate: a fallback answered with nil")

// Rows are the rows of a query, see [sql.Rows]. They hold their connection and the permit of
// their call until they are closed, or have been read to their end. Rows that are lost are
// found by the garbage collector, which can take minutes, so that is a net under a fault and
// not a way to work.
type Rows struct {
	rows    *sql.Rows
	lease   *core.Lease // nil for rows of a session, which holds it
	session *core.Session
	cleanup runtime.Cleanup
}

func holdRows(rows *sql.Rows, l *core.Lease) *Rows {
	r := &Rows{rows: rows, lease: l}
	r.cleanup = runtime.AddCleanup(r, (*core.Lease).Abandon, l)
	return r
}

func discardRows(r *Rows) {
	if r != nil {
		_ = r.Close()
	}
}

// Next prepares the next row for [Rows.Scan], see [sql.Rows.Next]. After the last row of the
// last result set the rows are closed.
func (r *Rows) Next() bool {
	defer runtime.KeepAlive(r) // using is not losing
	if r.rows.Next() {
		return true
	}
	if _, err := r.rows.Columns(); err != nil { // that they are closed; otherwise there is another set
		r.end()
	}
	return false
}

// NextResultSet prepares the next set of rows, see [sql.Rows.NextResultSet].
func (r *Rows) NextResultSet() bool {
	defer runtime.KeepAlive(r)
	if r.rows.NextResultSet() {
		return true
	}
	r.end()
	return false
}

// Scan copies the columns of the row into what dest points at, see [sql.Rows.Scan].
func (r *Rows) Scan(dest ...any) error {
	defer runtime.KeepAlive(r)
	return r.rows.Scan(dest...)
}

// Err returns the error that ended [Rows.Next], if one did.
func (r *Rows) Err() error {
	defer runtime.KeepAlive(r)
	return r.rows.Err()
}

// Close ends the rows. It may be called more than once.
func (r *Rows) Close() error {
	defer runtime.KeepAlive(r)
	err := r.rows.Close()
	r.end()
	return err
}

// Columns returns the names of the columns.
func (r *Rows) Columns() ([]string, error) {
	defer runtime.KeepAlive(r)
	return r.rows.Columns()
}

// ColumnTypes returns what is known of the columns.
func (r *Rows) ColumnTypes() ([]*sql.ColumnType, error) {
	defer runtime.KeepAlive(r)
	return r.rows.ColumnTypes()
}

func (r *Rows) end() {
	if r.lease == nil {
		r.session.Note(r.rows.Err())
		return
	}
	r.cleanup.Stop()
	r.lease.End(r.rows.Err())
}

// Row is the only row of a query, see [sql.Row].
type Row struct {
	rows *Rows
	err  error
}

func newRow(rows *Rows, err error) *Row { return &Row{rows: rows, err: err} }

// Err returns the error of the query, before and without Scan.
func (r *Row) Err() error { return r.err }

// Scan copies the columns of the row into what dest points at, and gives the connection back.
// When there is no row it returns [sql.ErrNoRows]; further rows are ignored.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	for _, d := range dest {
		if _, ok := d.(*sql.RawBytes); ok {
			return errRawBytes // it would point into what has been closed
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}

var errRawBytes = errors.New("sqlgate: RawBytes cannot be used with Row.Scan")
