package load

import (
	"context"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// pacer has vegeta send each request when it is due.
type pacer struct {
	schedule *Schedule
	ctx      context.Context //nolint:containedctx // Pace has a fixed signature
}

var _ vegeta.Pacer = pacer{}

// Pace waits until the next request is due. It does so itself, since the attack's own
// sleep cannot be interrupted, and a load may have long pauses.
func (p pacer) Pace(elapsed time.Duration, hits uint64) (time.Duration, bool) {
	if p.ctx.Err() != nil || hits >= uint64(p.schedule.total) {
		return 0, true
	}
	wait := p.schedule.due(int(hits)) - elapsed
	if wait <= 0 {
		return 0, false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, false
	case <-p.ctx.Done():
		return 0, true
	}
}

// Rate returns the rate at a time.
func (p pacer) Rate(elapsed time.Duration) float64 { return p.schedule.rate(elapsed) }
