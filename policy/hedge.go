package policy

import (
	"sync/atomic"
	"time"
)

// A hedge is an attempt that is started beside one that is slow: the first of them to
// answer is the call's, and the others are canceled. Hedges are for what is slow now
// and then; what fails is retried.

// HedgeState is what a [Hedger] decides from.
type HedgeState struct {
	Now     time.Time     // when the hedge is due
	Attempt int           // number of the attempt that is slow, from 1
	Hedge   int           // number of the hedge beside it, from 1
	Delay   time.Duration // since the attempt began to run
	Call    *Call         // what the call says about itself
}

// A Hedger decides whether an attempt that is slow gets another one beside it. All
// methods are called concurrently.
type Hedger interface {
	// First is told of the first attempt of each call, hedged or not, once its gates
	// have let it in: what a budget is a share of. It is on the path of every call.
	First(a *Attempt)

	// Delay is asked before each attempt that may be hedged. It returns how long
	// the attempt may run before the first hedge, and how long each hedge may before
	// the next. Negative means that this attempt is not hedged.
	Delay(now time.Time) time.Duration

	// Allow is asked when a hedge is due, on a goroutine of its own. When it answers
	// with true it has taken what the hedge costs.
	Allow(s HedgeState) bool

	// Undo gives back what the last Allow took: the hedge did not reach the
	// dependency, because a gate refused it or an answer came first.
	Undo(now time.Time)

	// Observe is told how long an attempt ran that could have been hedged and was no
	// hedge itself: until it was answered, or until a hedge was answered in its
	// place. It is not told of attempts that failed, since these say nothing of how
	// long an answer takes.
	Observe(now time.Time, d time.Duration)
}

// hedgeStats counts what became of hedges.
type hedgeStats struct {
	name                              string
	started, won, suppressed, refused atomic.Uint64
}

// addTo fills in what a snapshot says about hedges that were due.
func (c *hedgeStats) addTo(s *HedgeSnapshot) {
	s.Started = c.started.Load()
	s.Won = c.won.Load()
	s.Suppressed = c.suppressed.Load()
	s.Refused = c.refused.Load()
}
