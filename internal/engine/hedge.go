package engine

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
)

// Hedging is failsafe-go's hedge policy, made once for all races that may have as many
// hedges. It starts what runs, each on a goroutine of its own, and waits; the rest is
// the race's: what runs does so under contexts of the race's own, since those of
// failsafe-go cannot be kept for one of several executions, and its delay begins while
// the first may still stand in a queue.
type Hedging struct {
	executor failsafe.Executor[any]
}

// A Race is an attempt with the hedges beside it.
type Race interface {
	// Delay returns the time before the next hedge.
	Delay() time.Duration

	// Run makes an attempt, the first one or a hedge, and reports whether the race is
	// over. It neither panics nor ends its goroutine. gone, of a hedge, is closed when
	// the race is over.
	Run(hedge bool, gone <-chan struct{}) (over bool)
}

// NewHedging returns the engine of races with at most maxHedges hedges.
func NewHedging(maxHedges int) *Hedging {
	h := hedgepolicy.NewBuilderWithDelayFunc(func(e failsafe.ExecutionAttempt[any]) time.Duration {
		return e.Context().(raceContext).race.Delay() // the engine's own executor has no other
	}).WithMaxHedges(maxHedges).CancelIf(func(over any, _ error) bool {
		return over.(bool) // as the function returns it
	}).Build()
	return &Hedging{executor: failsafe.With[any](h)}
}

// Run runs r. When it returns, the race is over; what has lost may still run.
func (h *Hedging) Run(r Race) {
	_, _ = h.executor.WithContext(raceContext{context.Background(), r}).
		GetWithExecution(func(e failsafe.Execution[any]) (any, error) {
			if !e.IsHedge() {
				return r.Run(false, nil), nil
			}
			return r.Run(true, e.Canceled()), nil
		})
}

// raceContext leads failsafe-go's functions to the race. It never ends by itself: the
// race knows when its caller gives up, and nothing has to be watched for it.
type raceContext struct {
	context.Context //nolint:containedctx // this is a context

	race Race
}
