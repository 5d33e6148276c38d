package breaker

import "errors"

// ErrOpen is the cause of every refusal of a breaker: it is open, by a rule or by
// command, half-open with all its probes in flight, or recovering; the reason of the
// [policy.RejectedError] says which.
//
// [policy.RejectedError]: https://pkg.go.dev/github.com/breakwater-go/breakwater/policy#RejectedError
var ErrOpen = errors.New("breaker: open")

// ErrThrottled is the cause of every refusal of a [Throttler].
var ErrThrottled = errors.New("breaker: throttled")
