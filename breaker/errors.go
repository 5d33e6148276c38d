package breaker

import "errors"

// ErrOpen is the cause of every refusal of a breaker: it is open, or half-open with
// all its probes in flight; the reason of the [policy.RejectedError] says which.
//
// [policy.RejectedError]: https://pkg.go.dev/github.com/breakwater-go/breakwater/policy#RejectedError
var ErrOpen = errors.New("breaker: open")
