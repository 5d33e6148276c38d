package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrRejected matches every [*RejectedError] with [errors.Is]: a policy did not let
// the call run.
var ErrRejected = errors.New("rejected")

// ErrClosed is the cause of refusals after [Registry.Close] or [Pipeline.Close].
var ErrClosed = errors.New("policy: pipeline is closed")

// Reason says why a policy refused. It is a closed set, usable as a metric label
// and a log field.
type Reason uint8

// The reasons of a refusal.
const (
	ReasonUnknown     Reason = iota // a gate that gave none
	ReasonRate                      // the rate limit has no token left
	ReasonCost                      // the call costs more than the limit can ever hold
	ReasonConcurrency               // every permit is taken
	ReasonWaiters                   // every permit is taken and the queue is full
	ReasonWait                      // no permit or token came free within the time allowed to wait
	ReasonDeadline                  // the wait would outlast the context's deadline, so it was not begun
	ReasonOpen                      // the breaker is open
	ReasonProbes                    // the breaker is half-open and its probes are all in flight
	ReasonForced                    // an operator holds the breaker open
	ReasonRamp                      // the breaker is recovering, and lets only a share of the calls through
	ReasonThrottle                  // the dependency refuses a share of the calls, so that share is not sent
	ReasonClosed                    // the pipeline was closed
	ReasonUnavailable               // the store that the policy depends on cannot be asked

	// NumReasons is the number of reasons, for arrays indexed by Reason.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"unknown", "rate", "cost", "concurrency", "waiters", "wait", "deadline",
	"open", "probes", "forced", "ramp", "throttle", "closed", "unavailable",
}

// String returns the reason's name in lower case, as metrics and logs show it.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Never is the RetryAfter of a refusal that no waiting can change, such as a cost
// larger than the burst.
const Never = time.Duration(math.MaxInt64)

// RejectedError reports that a policy refused to run a call. The function was not
// called, and nothing that other gates took for it is still taken. It is always
// handed over as a pointer.
type RejectedError struct {
	// Dependency is the name of the pipeline.
	Dependency string

	// Policy is the instance name of the policy that refused, such as "breaker".
	Policy string

	// Reason says why.
	Reason Reason

	// RetryAfter is the earliest useful time for another try, seen from the moment
	// of the refusal. Zero is unknown; [Never] means that no waiting will help.
	RetryAfter time.Duration

	// Err is the policy's own sentinel, such as breaker.ErrOpen, or nil.
	Err error
}

// Error names the dependency, the policy and the reason. RetryAfter is rounded up to
// milliseconds.
func (e *RejectedError) Error() string {
	var b strings.Builder
	if e.Dependency != "" {
		b.WriteString(e.Dependency)
		b.WriteString(": ")
	}
	b.WriteString("rejected by ")
	b.WriteString(e.Policy)
	b.WriteString(" (")
	b.WriteString(e.Reason.String())
	b.WriteByte(')')
	switch {
	case e.RetryAfter == Never:
		b.WriteString(", no retry will help")
	case e.RetryAfter > 0:
		b.WriteString(", retry after ")
		b.WriteString(inMilliseconds(e.RetryAfter).String())
	}
	return b.String()
}

// inMilliseconds rounds d up, as long as it can: whoever waits for that long must not
// come too early.
func inMilliseconds(d time.Duration) time.Duration {
	t := d.Truncate(time.Millisecond)
	if t < d && t <= math.MaxInt64-time.Millisecond {
		t += time.Millisecond
	}
	return t
}

// Unwrap lets [errors.Is] find [ErrRejected] and the policy's sentinel.
func (e *RejectedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrRejected}
	}
	return []error{ErrRejected, e.Err}
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as the
// Retry-After header wants it (RFC 9110 §10.2.3). It reports false when the time is
// unknown or [Never].
func (e *RejectedError) RetryAfterSeconds() (int, bool) {
	if e.RetryAfter <= 0 || e.RetryAfter == Never {
		return 0, false
	}
	s := int64(e.RetryAfter / time.Second)
	if e.RetryAfter%time.Second != 0 {
		s++
	}
	return int(min(s, math.MaxInt32)), true
}

// GaveUpError reports that a call failed and that something other than its number
// of attempts kept it from being tried again. [errors.Is] and [errors.As] find both
// the last error of the dependency and the cause.
type GaveUpError struct {
	// Dependency is the name of the pipeline.
	Dependency string

	// Attempts is the number of attempts that ran.
	Attempts int

	// Stop says what ended the call.
	Stop Stop

	// Last is the last error of the dependency. It is never nil.
	Last error

	// Cause is the error behind Stop: the context's error, or the [*RejectedError]
	// that met a later attempt. It is nil where Stop says it all.
	Cause error
}

// Error names the dependency, what ended the call, and its last error. The dependency
// is named once, also where what these say begins with its name.
func (e *GaveUpError) Error() string {
	prefix, why, attempts := "", e.Stop.String(), "attempts"
	if e.Dependency != "" {
		prefix = e.Dependency + ": "
	}
	if e.Cause != nil {
		cause := strings.TrimPrefix(e.Cause.Error(), prefix)
		if _, ok := e.Cause.(*RejectedError); ok && e.Stop == StopRejected { //nolint:errorlint // a text in front may not say so
			why = cause // says so itself
		} else {
			why += ": " + cause
		}
	}
	if e.Attempts == 1 {
		attempts = "attempt"
	}
	last := strings.TrimPrefix(e.Last.Error(), prefix)
	return fmt.Sprintf("%sgave up after %d %s (%s): %s", prefix, e.Attempts, attempts, why, last)
}

// Unwrap returns Last and Cause.
func (e *GaveUpError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Last}
	}
	return []error{e.Last, e.Cause}
}

// AnswerError stands for an answer that came without an error and was classified as
// something other than a success, such as an HTTP response with status 503, where
// the answer itself cannot be returned any more.
type AnswerError struct {
	Dependency string // name of the pipeline
	Kind       Kind   // what the answer was classified as
	Code       uint16 // its status code in its own protocol, such as 503; 0 when it has none
}

// Error names the dependency, the kind and the code.
func (e *AnswerError) Error() string {
	s := e.Dependency + ": the answer was classified as " + e.Kind.String()
	if e.Code != 0 {
		s += " (status " + strconv.Itoa(int(e.Code)) + ")"
	}
	return s
}

// unansweredError is the error of a call that a fallback failed to answer for. It
// reads and matches like the two errors joined.
type unansweredError struct{ call, fallback error }

func (e *unansweredError) Error() string   { return e.call.Error() + "\n" + e.fallback.Error() }
func (e *unansweredError) Unwrap() []error { return []error{e.call, e.fallback} }

// ConfigError reports one invalid setting. Validate methods and [New] return all of
// them at once, joined; [errors.As] finds the first.
type ConfigError struct {
	Dependency string // name of the pipeline; empty outside one
	Policy     string // kind or instance name of the policy, such as "retry"
	Field      string // name of the field, such as "MaxAttempts"
	Value      any    // the value that was refused; nil when the fault is not one value's
	Want       string // what is allowed, such as "at least 0 (0 means 3)"
}

// Error reads like "inventory.retry.MaxAttempts: -1: want at least 0 (0 means 3)".
func (e *ConfigError) Error() string {
	var b strings.Builder
	for _, s := range []string{e.Dependency, e.Policy, e.Field} {
		if s == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	if e.Value != nil {
		fmt.Fprintf(&b, ": %v", e.Value)
	}
	b.WriteString(": ")
	b.WriteString(e.Want)
	return b.String()
}

// inPipeline fills in dependency and policy of every ConfigError inside err, and
// returns the same errors, flattened into one list.
func inPipeline(err error, dependency, policy string) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, inPipeline(e, dependency, policy)...)
		}
		return all
	}
	if ce, ok := err.(*ConfigError); ok { //nolint:errorlint // only a bare ConfigError may be rewritten
		c := *ce
		c.Dependency = dependency
		if policy != "" {
			c.Policy = policy
		}
		return []error{&c}
	}
	return []error{fmt.Errorf("%s: %w", dependency, err)}
}
