package sqlgate

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate/internal/core"
)

// Config configures a [DB]. The zero value is valid: every field documents what zero means.
// [Wrap] copies it; later changes have no effect.
//
// The functions run on the goroutine of the call, except OnAbandoned, and may run
// concurrently.
type Config struct {
	// Name is the name of the pool among the policies of the pipeline: the policy label of
	// metrics, events and errors. Empty means "connections".
	Name string

	// MaxConns is the number of connections that may be out at the same time, from 1 to
	// 2,147,483,647 and at most that of the pool. Zero means as many as the pool has, which
	// must have a bound then. Fewer leave the rest to those who use the pool directly.
	MaxConns int

	// MaxWait is the longest wait for a connection. Zero means 1s, negative that nobody
	// waits. A deadline of the context that comes first ends the wait first. The time in
	// which the pool opens a connection is not part of it.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time, up to
	// 2,147,483,647. Zero means as many as MaxConns. Who finds the queue full is refused at
	// once, or takes the place of one of lower priority.
	MaxWaiters int

	// Idempotent says whether a statement may be run twice, also at the same time. It is
	// asked about those of a [DB], not about those of a [Tx] or a [Conn]. It is not asked
	// about a call that says so itself (policy.Call.Idempotent). Nil means that none may.
	Idempotent func(query string) bool

	// Classify judges an error. [policy.NotRun] leaves it to the pipeline's classifiers and
	// to [KindOf]. It is not asked when the caller has given up. Nil judges nothing.
	Classify func(err error) policy.Kind

	// OnAbandoned is told of what was lost before it ended, after that has been ended and
	// its connection given back. That is a fault of the program, found late, so log it. It
	// must return quickly; a panic in it is dropped. Nil tells nobody; the pipeline's
	// snapshot counts them in any case.
	OnAbandoned func(a Abandoned)
}

// Abandoned describes what nobody ended.
type Abandoned struct {
	Dependency string // name of the pipeline
	What       string // "rows", "tx" or "conn"
}

// Validate reports every invalid field as a [*policy.ConfigError], joined.
func (c Config) Validate() error { return c.core(nil).Validate() }

func (c Config) core(p *policy.Pipeline) core.Config {
	out := core.Config{
		Name: c.Name, MaxConns: c.MaxConns, MaxWait: c.MaxWait, MaxWaiters: c.MaxWaiters,
		Idempotent: c.Idempotent, Classify: c.Classify,
	}
	if c.OnAbandoned != nil {
		out.OnAbandoned = func(what string) { c.OnAbandoned(Abandoned{Dependency: p.Name(), What: what}) }
	}
	return out
}

// KindOf says what an error of a database means to a pipeline. It goes by the SQLSTATE, that
// of errors which have a method SQLState() string (pgx, lib/pq), by the number of
// go-sql-driver's MySQLError, and by the errors of database/sql:
//
//   - [sql.ErrNoRows] is a [policy.Success]: that is an answer
//   - no connection, a lost one, a server that shuts down, has met an I/O error or is
//     confused (08, 57, 58, XX, [driver.ErrBadConn]) is a [policy.Failure]
//   - no connections, disk or memory left, or still starting up (53, 57P03) is [policy.Busy]
//   - a statement that the server canceled (57014) is a [policy.Timeout]: by a limit of its
//     own, since the caller's cancellation and deadline are known before
//   - contention (40001, 40P01, 55P03; 1213 and 1205 of MySQL) is [policy.Throttled]: the
//     server is well, another transaction had the rows first. A breaker that opened on it
//     would stop those that do not meet
//   - all other states are [policy.Permanent]: data, constraints, syntax, privileges, which
//     another attempt does not change, and so is what database/sql refuses itself
//
// It returns [policy.NotRun] for an error of none of these kinds, which a pipeline judges by
// itself: a timeout, the end of a context, and otherwise a failure.
func KindOf(err error) policy.Kind { return core.KindOf(err) }
