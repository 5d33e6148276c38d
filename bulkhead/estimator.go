package bulkhead

import "github.com/failsafe-go/failsafe-go/adaptivelimiter"

// estimator finds a concurrency limit from how long calls take. It is failsafe-go's
// adaptive limiter, of which this is the only file to know: it gives out permits too,
// but who is let in is decided by a counter, which knows of priorities, bounded waits
// and reserves.
type estimator struct {
	limiter adaptivelimiter.AdaptiveLimiter[any]
}

// headroom is how many times the calls in flight the estimate may be.
const headroom = 5

// newEstimator returns an estimator that begins at a limit, and does not sink below idle
// for want of traffic.
func newEstimator(least, most, limit, idle int) estimator {
	return estimator{limiter: adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(least), uint(most), uint(limit)).
		// The library's own rule lets the limit sink to the floor while there is little
		// traffic, so that the next burst is refused.
		WithMaxLimitFunc(func(inFlight int) float64 { return max(headroom*float64(inFlight), float64(idle)) }).
		Build()}
}

// begin is told that a call begins, and returns what endEstimate wants back. That is nil for
// a call that it cannot follow, because it has lowered its limit just now.
func (e estimator) begin() any {
	p, ok := e.limiter.TryAcquirePermit()
	if !ok {
		return nil
	}
	return p
}

// endEstimate is told that the call has ended, and whether its duration says anything. It
// goes to the estimator that has seen the call begin.
func endEstimate(call any, counts bool) {
	p, ok := call.(adaptivelimiter.Permit)
	switch {
	case !ok:
	case counts:
		p.Record()
	default:
		p.Drop()
	}
}

func (e estimator) limit() int { return e.limiter.Limit() }
