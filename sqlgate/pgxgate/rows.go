package pgxgate

import (
	"errors"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// rows are the rows of a query, whose first is there already. They are what the caller has, and
// apart from what they hold so that the garbage collector can tell when they are lost.
type rows struct {
	tail    *tail
	ready   bool // the first row is there, and has not been asked for
	cleanup runtime.Cleanup
}

func holdRows(t *tail, ready bool) *rows {
	r := &rows{tail: t, ready: ready}
	r.cleanup = runtime.AddCleanup(r, (*core.Lease).Abandon, t.lease)
	return r
}

func discardRows(r pgx.Rows) {
	if r != nil {
		r.Close()
	}
}

// tail is what rows hold. pgx's own rows are for one goroutine, and the end of a context comes
// on another, so there is a lock.
type tail struct {
	mu     sync.Mutex
	rows   pgx.Rows
	conn   *pgxpool.Conn
	lease  *core.Lease
	ended  bool
	broken bool // ended while they were read; what is left must not be touched
}

// shut ends rows that nobody will read, or whose context has ended: the connection is in the
// middle of something, so the pool closes it.
func (t *tail) shut() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended, t.broken = true, true
		t.conn.Release()
	}
	return nil
}

// endLocked gives back what rows that are closed hold; err is what the database said. It
// requires that t.mu is held.
func (t *tail) endLocked(err error) {
	if !t.ended {
		t.ended = true
		t.conn.Release()
		t.lease.End(err)
	}
}

func (r *rows) Next() bool {
	t := r.tail
	defer runtime.KeepAlive(r) // using is not losing
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return false
	}
	if r.ready {
		r.ready = false
		return true
	}
	if t.rows.Next() {
		return true
	}
	r.cleanup.Stop()
	t.endLocked(t.rows.Err())
	return false
}

func (r *rows) Scan(dest ...any) error {
	t := r.tail
	defer runtime.KeepAlive(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return r.errLocked()
	}
	err := t.rows.Scan(dest...)
	if err != nil { // pgx has closed them, and the database has no part in it
		r.cleanup.Stop()
		t.endLocked(nil)
	}
	return err
}

func (r *rows) Values() ([]any, error) {
	t := r.tail
	defer runtime.KeepAlive(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return nil, r.errLocked()
	}
	v, err := t.rows.Values()
	if err != nil {
		r.cleanup.Stop()
		t.endLocked(nil)
	}
	return v, err
}

func (r *rows) Close() {
	t := r.tail
	defer runtime.KeepAlive(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.broken {
		t.rows.Close()
		t.endLocked(t.rows.Err())
	}
	r.cleanup.Stop()
}

func (r *rows) Err() error {
	defer runtime.KeepAlive(r)
	r.tail.mu.Lock()
	defer r.tail.mu.Unlock()
	return r.errLocked()
}

// errLocked returns the error of the rows. It requires that the tail's lock is held.
func (r *rows) errLocked() error {
	if r.tail.broken {
		return r.tail.lease.Cause()
	}
	return r.tail.rows.Err()
}

func (r *rows) RawValues() [][]byte {
	r.tail.mu.Lock()
	defer r.tail.mu.Unlock()
	if r.tail.broken {
		return nil
	}
	return r.tail.rows.RawValues()
}

func (r *rows) CommandTag() pgconn.CommandTag                { return r.tail.rows.CommandTag() }
func (r *rows) FieldDescriptions() []pgconn.FieldDescription { return r.tail.rows.FieldDescriptions() }
func (r *rows) TypeMap() *pgtype.Map                         { return r.tail.rows.TypeMap() }
func (r *rows) Conn() *pgx.Conn                              { return r.tail.rows.Conn() }

// seen are rows under the permit of something else: their first row is there, and their end is
// told to that.
type seen struct {
	pgx.Rows

	ready   bool
	done    bool
	session *core.Session
}

func (r *seen) Next() bool {
	if r.ready {
		r.ready = false
		return true
	}
	if r.Rows.Next() {
		return true
	}
	r.end()
	return false
}

// Scan ends the rows when it fails, as pgx's does, and the database has no part in it.
func (r *seen) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	r.done = r.done || err != nil
	return err
}

func (r *seen) Values() ([]any, error) {
	v, err := r.Rows.Values()
	r.done = r.done || err != nil
	return v, err
}

func (r *seen) Close() {
	r.Rows.Close()
	r.end()
}

func (r *seen) end() {
	if !r.done {
		r.done = true
		r.session.Note(r.Err())
	}
}

// row is the only row of a query.
type row struct{ rows pgx.Rows }

// Scan does what pgx's does.
func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	if err := r.rows.Err(); err != nil {
		return err
	}
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errDriverBytes // they would point into what has been closed
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

var errDriverBytes = errors.New("pgxgate: cannot scan into *pgtype.DriverBytes from QueryRow")

// failedRows are those of a query that failed.
type failedRows struct{ err error }

func (failedRows) Close()                                       {}
func (f failedRows) Err() error                                 { return f.err }
func (failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failedRows) Next() bool                                   { return false }
func (f failedRows) Scan(...any) error                          { return f.err }
func (f failedRows) Values() ([]any, error)                     { return nil, f.err }
func (failedRows) RawValues() [][]byte                          { return nil }
func (failedRows) Conn() *pgx.Conn                              { return nil }
func (failedRows) TypeMap() *pgtype.Map                         { return nil }
