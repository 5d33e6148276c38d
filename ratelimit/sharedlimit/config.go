package sharedlimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

const (
	defaultTimeout   = 50 * time.Millisecond
	defaultHeartbeat = time.Second
	defaultMaxKeys   = 10_000
	defaultWaiters   = 100

	maxTimeout = time.Minute
	maxLease   = time.Minute
	maxWait    = 365 * 24 * time.Hour
	maxNodes   = 1_000_000
	maxKeys    = 1 << 24
	maxTokens  = math.MaxInt >> (10 * (math.MaxInt >> 62))
)

// StandIn says what decides while the store cannot be asked.
type StandIn uint8

// The stand-ins.
const (
	LocalShare StandIn = iota // each process decides alone, about its share: the limit divided by the number of processes
	LetIn                     // every call is let in
	Refuse                    // no call is let in: refusals match [ratelimit.ErrUnavailable]

	numStandIns
)

var standInNames = [numStandIns]string{policy.SharedModeLocal, policy.SharedModeAllow, policy.SharedModeDeny}

// String returns the name of the mode that a limiter is in while it has to use the
// stand-in: "local", "allow" or "deny".
func (s StandIn) String() string {
	if s < numStandIns {
		return standInNames[s]
	}
	return "unknown"
}

// Settings are what all shared limits have in common. The zero value is useful. Packages
// that know a store have it as a field of their configuration.
type Settings struct {
	// Timeout is the longest time that a call waits for the store, up to 1 minute. When
	// it has passed the stand-in decides. Zero means 50 ms.
	Timeout time.Duration

	// StandIn says what decides when the store did not answer in time, or with an error.
	// After 5 errors in a row, or when a quarter of the calls of a second fail (of 20
	// at least), the store is not asked by calls any more: a probe in the background
	// finds out, four times a second, when it can be again. The zero value is
	// [LocalShare].
	StandIn StandIn

	// Nodes is the number of processes that share the limit, for LocalShare. Zero means
	// that they are counted by heartbeats, where the store can do that; until the first
	// one is answered, and where it cannot, it means 1, which lets each process have the
	// whole limit.
	Nodes int

	// Heartbeat is the time between two heartbeats, at least 10 ms. A process that was
	// not heard of for three of them is not counted. They begin with the first call. Zero
	// means 1 s. It must be zero when Nodes is set.
	Heartbeat time.Duration

	// LocalOnly makes the share the limit, always: no call asks the store. It only
	// counts the processes, so shares change as they come and go.
	LocalOnly bool

	// LeaseFor makes each process take tokens ahead, as many as it has used of late in
	// half of this time, and keep them no longer than this, at most 1 minute. Most calls
	// are then answered from memory. What is not used is given back. Zero means no
	// leases: each call asks the store.
	//
	// In any stretch of time, all processes together then let through at most MaxLease and
	// a quarter of it, for each of them, more than the limit does.
	LeaseFor time.Duration

	// MaxLease is the largest number of tokens that are taken ahead at once, for each
	// key. Zero means a quarter of the smallest burst, but at least 1. It needs
	// LeaseFor.
	MaxLease int

	// MaxKeys is the largest number of keys of which something is remembered: tokens
	// that were taken ahead or given back. Zero means 10,000. Above it some are
	// forgotten, and their tokens with them. The table of local shares has room for
	// ten times as many.
	MaxKeys int

	// MaxWait is the longest time that a call waits for its tokens, up to a year. Zero
	// means that nobody waits: a call that finds too few is refused at once. A call
	// that waits asks the store again when it said that the tokens will be there;
	// others may have taken them first.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero means
	// 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it asks the store and takes tokens, its
	// decision is counted and reported, and the call runs in any case. It has no
	// effect on the methods of [Limiter].
	Shadow bool

	// Logger gets one line for each change of mode. Nil means none; observers of the
	// pipeline are told in any case.
	Logger *slog.Logger
}

// Validate reports every invalid field as a [*policy.ConfigError] of the given kind of
// policy, joined with [errors.Join]. The fields are named with a prefix.
func (s Settings) Validate(kind, prefix string) error {
	var errs []error
	fail := func(field string, value any, format string, args ...any) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: prefix + field, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	if s.Timeout < 0 || s.Timeout > maxTimeout {
		fail("Timeout", s.Timeout, "want a positive duration, at most %s, or 0 (%s)", maxTimeout, defaultTimeout)
	}
	if s.StandIn >= numStandIns {
		fail("StandIn", uint8(s.StandIn), "want LocalShare, LetIn or Refuse")
	}
	if s.Nodes < 0 || s.Nodes > maxNodes {
		fail("Nodes", s.Nodes, "want 1 to %d, or 0 (counted by heartbeats)", maxNodes)
	}
	switch {
	case s.Heartbeat != 0 && s.Nodes > 0:
		fail("Heartbeat", s.Heartbeat, "want 0 while Nodes is set: nothing is counted")
	case s.Heartbeat != 0 && (s.Heartbeat < 10*time.Millisecond || s.Heartbeat > time.Hour):
		fail("Heartbeat", s.Heartbeat, "want 10ms to 1h, or 0 (%s)", defaultHeartbeat)
	}
	if s.LeaseFor < 0 || s.LeaseFor > maxLease {
		fail("LeaseFor", s.LeaseFor, "want at most %s, or 0 (no leases)", maxLease)
	}
	switch {
	case s.MaxLease < 0:
		fail("MaxLease", s.MaxLease, "want at least 1, or 0 (a quarter of the burst)")
	case s.MaxLease > 0 && s.LeaseFor == 0:
		fail("MaxLease", s.MaxLease, "want 0 while LeaseFor is 0: there are no leases; set LeaseFor too")
	}
	if s.LocalOnly && s.LeaseFor > 0 {
		fail("LeaseFor", s.LeaseFor, "want 0 with LocalOnly: the store is not asked")
	}
	if s.LocalOnly && s.StandIn != LocalShare {
		fail("StandIn", s.StandIn, "want LocalShare with LocalOnly: the share always decides")
	}
	if s.MaxKeys < 0 || s.MaxKeys > maxKeys {
		fail("MaxKeys", s.MaxKeys, "want 1 to %d, or 0 (%d)", maxKeys, defaultMaxKeys)
	}
	if s.MaxWait < 0 || s.MaxWait > maxWait {
		fail("MaxWait", s.MaxWait, "want at most %s, or 0 (does not wait)", maxWait)
	}
	switch {
	case s.MaxWaiters < 0:
		fail("MaxWaiters", s.MaxWaiters, "want at least 1, or 0 (%d)", defaultWaiters)
	case s.MaxWaiters > 0 && s.MaxWait == 0:
		fail("MaxWaiters", s.MaxWaiters, "want 0 while MaxWait is 0: nobody waits; set MaxWait too")
	}
	return errors.Join(errs...)
}

// withDefaults returns the effective settings. s must be valid.
func (s Settings) withDefaults(smallest int) Settings {
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Heartbeat == 0 && s.Nodes == 0 {
		s.Heartbeat = defaultHeartbeat
	}
	if s.LeaseFor > 0 && s.MaxLease == 0 {
		s.MaxLease = max(smallest/4, 1)
	}
	if s.MaxKeys == 0 {
		s.MaxKeys = defaultMaxKeys
	}
	if s.MaxWait > 0 && s.MaxWaiters == 0 {
		s.MaxWaiters = defaultWaiters
	}
	return s
}

// Limit is one of the limits that a call must keep, as it is known without the store:
// what the local share is a share of.
type Limit struct {
	// Name is the name of the limit, which refusals tell where there are several.
	Name string

	// Rate and Burst are the limit, of each key, over all processes. Burst must be above
	// 0.
	Rate  ratelimit.Rate
	Burst int

	// MaxCost is the most that a call may cost. Zero means Burst.
	MaxCost int

	// KeyOf returns what a call is counted by. Nil means that all calls are counted
	// together. It runs on the calling goroutine and may run concurrently.
	KeyOf func(ctx context.Context, c *policy.Call) string
}

func (l *Limit) most() int {
	if l.MaxCost > 0 {
		return min(l.MaxCost, l.Burst)
	}
	return l.Burst
}

// ByKey is the KeyOf that counts by what the call says about itself: [policy.Call] Key.
func ByKey(_ context.Context, c *policy.Call) string { return c.Key }
