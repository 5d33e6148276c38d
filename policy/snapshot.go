package policy

import (
	"time"
)

// Snapshot is the state of a pipeline at one moment. Every view (metrics,
// dashboard, debug pages) reads it, so no two of them can disagree. Counters only
// rise. Counters of one snapshot are read one after the other while calls go on, so
// they may differ by the calls in flight.
type Snapshot struct {
	Dependency string
	Time       time.Time

	// Calls counts finished calls by the outcome of their last attempt;
	// Calls[NotRun] were refused, or their context was done from the start.
	Calls [NumKinds]uint64

	// Attempts counts attempts by outcome; Attempts[NotRun] were refused.
	Attempts [NumKinds]uint64

	// Retries counts attempts after the first one of their call.
	Retries uint64

	// Panics counts attempts that ended in a panic or in runtime.Goexit. They are
	// in Attempts[Failure] too.
	Panics uint64

	// Discarded counts outcomes that a policy ignored because they came too late.
	Discarded uint64

	// Abandoned counts responses whose body nobody closed.
	Abandoned uint64

	// Latency holds the durations of all attempts that ran.
	Latency Latency

	// Policies describes each policy, outermost first.
	Policies []PolicySnapshot
}

// PolicySnapshot is the state of one policy in a pipeline.
type PolicySnapshot struct { //nolint:revive // Snapshot is the pipeline's
	Name   string // instance name, unique in the pipeline
	Kind   string // kind of policy
	Shadow bool   // it only watches

	// Rejected counts refusals by reason. In shadow mode it counts the refusals
	// that would have been.
	Rejected [NumReasons]uint64

	// Exactly one of these is set for the policies of this module; none for
	// others.
	Breaker  *BreakerSnapshot
	Bulkhead *BulkheadSnapshot
	Limiter  *LimiterSnapshot
	Retry    *RetrySnapshot
	Fallback *FallbackSnapshot
	Timeouts *Timeouts
}

// BreakerSnapshot is the state of a breaker.
type BreakerSnapshot struct {
	State      string    // one of BreakerStates
	Since      time.Time // when the state began
	Generation uint64
	Why        string        // why the state was entered
	RetryAfter time.Duration // while open, time to the next probe

	Calls, Failures, Slow     uint64  // in the window; while half-open, of its probes
	FailureRatio, SlowRatio   float64 // of the window; 0 when it is empty
	FailureThreshold          float64 // 0 when the rule is off
	SlowThreshold             float64 // 0 when the rule is off
	MinCalls                  uint64
	ProbesInFlight, MaxProbes int
	Opened                    uint64 // how often it opened since the start
}

// BreakerStates lists every state a breaker can report, in the order of its cycle.
func BreakerStates() []string { return []string{"closed", "open", "half_open"} }

// BulkheadSnapshot is the state of a bulkhead. What is in flight are permits of a
// semaphore and functions on the workers of a pool; what waits are calls.
//
// A semaphore does not time what it lets in: that is [Snapshot] Latency, and the
// number of completed attempts is in Snapshot.Attempts.
type BulkheadSnapshot struct {
	InFlight, Limit     int
	Waiting, MaxWaiters int
	HighWater           int // largest InFlight so far
	Reserve             int // permits that only calls of high priority get

	// Wait holds how long attempts stood in the queue, whatever became of them.
	// Those that found room at once are not in it. Empty when nobody may wait.
	Wait Latency

	// Of a limit that is found at run time: its bounds, and how often it was found
	// anew from the start. All 0 otherwise.
	MinLimit, MaxLimit int
	Rebased            uint64

	// Of a pool; all 0 otherwise.
	Workers      int     // goroutines, idle ones included
	Idle         int     // goroutines that have nothing to do
	Orphans      int     // functions in flight whose callers have left
	Run          Latency // of every function that ended on a worker, however it did
	Completed    uint64  // functions that ended on a worker
	Abandoned    uint64  // callers that left while their function ran
	Expired      uint64  // calls whose context ended in the queue: they never ran
	CallerRan    uint64  // functions run by their own callers, the queue being full
	OrphanPanics uint64  // panics of functions whose callers had left: nobody was told
	Overloaded   bool    // the queue has not been empty for long, and is shed
}

// LimiterSnapshot is the state of a rate limiter.
type LimiterSnapshot struct {
	Tokens float64 // available now; negative while reserved ahead
	Burst  float64
	Rate   float64 // tokens per second
}

// RetrySnapshot is the state of a retry policy.
type RetrySnapshot struct {
	MaxAttempts int // 0 is unlimited

	// Stopped counts the calls that failed and were not tried again, by why.
	Stopped [NumStops]uint64

	// HasBudget says whether there is a budget; the rest describes it: first
	// attempts and retries in its window, and retries allowed now.
	HasBudget       bool
	BudgetRatio     float64
	BudgetFirsts    uint64
	BudgetRetries   uint64
	BudgetRemaining float64
}

// FallbackSnapshot is the state of a fallback.
type FallbackSnapshot struct {
	Served uint64 // answers given
	Failed uint64 // attempts to answer that ended in an error
}
