// Package core is what the wrappers of database/sql and of pgx have in common: the bound in
// front of a pool of connections, what errors of databases mean, and what is held until a
// result has been read.
package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	kind           = "connections"
	defaultMaxWait = time.Second
)

// Config is the Config of package sqlgate.
type Config struct {
	Name        string
	MaxConns    int
	MaxWait     time.Duration
	MaxWaiters  int
	Idempotent  func(query string) bool
	Classify    func(err error) policy.Kind
	OnAbandoned func(what string)
}

// Gate stands in front of a pool of connections. All methods are safe for concurrent use.
type Gate struct {
	p       *policy.Pipeline
	cfg     Config
	permits *bulkhead.Permits
	took    hist.Histogram // of statements
	at      *policy.Attachment
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: c.name(), Field: field, Value: value, Want: want})
	}
	if c.MaxConns < 0 || c.MaxConns > maxConns {
		fault("MaxConns", c.MaxConns, "want 1 to 2147483647, or 0 (as many as the pool has)")
	}
	if c.MaxWait > 0 && c.MaxWait < time.Microsecond {
		fault("MaxWait", c.MaxWait, "want at least 1µs, 0 (1s) or negative (does not wait); a number alone is nanoseconds")
	}
	switch {
	case c.MaxWaiters < 0 || c.MaxWaiters > maxConns:
		fault("MaxWaiters", c.MaxWaiters, "want 1 to 2147483647, or 0 (as many as MaxConns)")
	case c.MaxWaiters > 0 && c.MaxWait < 0:
		fault("MaxWaiters", c.MaxWaiters, "want 0 while MaxWait is negative: nobody waits")
	}
	return errors.Join(errs...)
}

const maxConns = 1<<31 - 1

func (c Config) name() string {
	if c.Name == "" {
		return kind
	}
	return c.Name
}

// New makes the gate of a pool of the given size, 0 for one without a bound, and shows it in
// the snapshots of p.
func New(p *policy.Pipeline, cfg Config, size int) (*Gate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Name = cfg.name()
	switch {
	case cfg.MaxConns == 0 && size <= 0:
		return nil, &policy.ConfigError{
			Dependency: p.Name(), Policy: cfg.Name, Field: "MaxConns", Value: 0,
			Want: "the pool has no bound: set one (SetMaxOpenConns) before it is wrapped, or MaxConns",
		}
	case cfg.MaxConns == 0:
		cfg.MaxConns = size
	case size > 0 && cfg.MaxConns > size:
		return nil, &policy.ConfigError{
			Dependency: p.Name(), Policy: cfg.Name, Field: "MaxConns", Value: cfg.MaxConns,
			Want: fmt.Sprintf("want at most as many as the pool has (%d): the rest would wait where nobody sees it", size),
		}
	}
	s := bulkhead.Semaphore{Name: cfg.Name, Limit: cfg.MaxConns}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = defaultMaxWait
	}
	if cfg.MaxWait > 0 {
		if cfg.MaxWaiters == 0 {
			cfg.MaxWaiters = cfg.MaxConns
		}
		s.MaxWait, s.MaxWaiters = cfg.MaxWait, cfg.MaxWaiters
	}
	permits, err := bulkhead.New(cfg.Name, s)
	if err != nil {
		return nil, err
	}
	g := &Gate{p: p, cfg: cfg, permits: permits}
	if g.at, err = p.Attach(g); err != nil {
		return nil, err
	}
	return g, nil
}

// Close takes the gate out of the snapshots of its pipeline.
func (g *Gate) Close() { g.at.Detach() }

// Pipeline returns the pipeline, which may be nil.
func (g *Gate) Pipeline() *policy.Pipeline { return g.p }

// Config returns the effective settings.
func (g *Gate) Config() Config {
	cfg := g.cfg
	cfg.MaxConns = g.permits.Config().Limit
	return cfg
}

// SetMaxConns changes the number of connections.
func (g *Gate) SetMaxConns(n int) error {
	if err := g.permits.SetLimit(n); err != nil {
		return &policy.ConfigError{Dependency: g.p.Name(), Policy: g.cfg.Name, Field: "MaxConns", Value: n, Want: "want 1 to 2147483647"}
	}
	return nil
}

// Snapshot implements [policy.Snapshotter].
func (g *Gate) Snapshot(now time.Time) policy.PolicySnapshot {
	s := g.permits.Snapshot(now)
	s.Kind = kind
	s.Waits = g.cfg.MaxWait > 0
	s.Bulkhead.Run = policy.Latency{Counts: make([]uint64, hist.Buckets)}
	s.Bulkhead.Run.Sum = g.took.AddTo(s.Bulkhead.Run.Counts)
	return s
}

// Take waits for a connection, within an attempt: that wait is the database's time.
//
// A wait that was too long says that the pool is too small for what goes on, which the
// database need not be at fault for. So it is no failure; but the time counts, and is slow if
// it is long. It is not tried again: the next wait would be behind those who wait now. One
// that was not begun, because too many wait already, took no time and says nothing at all.
func (g *Gate) Take(ctx context.Context, at *policy.Attempt) error {
	err := g.permits.Acquire(ctx)
	if err == nil {
		return nil
	}
	if re, ok := err.(*policy.RejectedError); ok { //nolint:errorlint // a policy's own refusal is never wrapped
		g.at.Reject(re, at)
		if re.Reason == policy.ReasonWait {
			at.SetOutcome(policy.Throttled, -1)
		}
	}
	return err
}

// Give gives a connection back that Take has taken.
func (g *Gate) Give() { g.permits.Release() }

// Took notes how long a statement took, without the wait for a connection.
func (g *Gate) Took(d time.Duration) { g.took.Record(d) }
