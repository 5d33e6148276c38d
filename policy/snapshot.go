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

	// Calls counts finished calls by the outcome of their last attempt, those that
	// panicked included; Calls[NotRun] were refused, here or by a pipeline further
	// down, or their context was done from the start.
	Calls [NumKinds]uint64

	// Attempts counts attempts by outcome; Attempts[NotRun] did not reach the
	// dependency.
	Attempts [NumKinds]uint64

	// Retries counts attempts after the first one of their call. Hedges are not among
	// them; they are in Attempts.
	Retries uint64

	// Panics counts attempts that ended in a panic or in [runtime.Goexit] on their
	// caller's goroutine, or in a panic on a worker. They are in Attempts too: as
	// failures when it was in the function, canceled in a classifier, and not run in
	// a gate that was asked.
	Panics uint64

	// Discarded counts outcomes that a policy ignored because they came too late.
	Discarded uint64

	// Abandoned counts responses whose body nobody closed.
	Abandoned uint64

	// Latency holds the durations of all attempts that ran, without their waits.
	Latency Latency

	// CallLatency holds what callers waited: the durations of the calls that returned
	// and whose outcome is not NotRun, with their waits, their retries and the delays
	// before these, and their fallback.
	CallLatency Latency

	// Derived is the number, from 1, of a pipeline among those of its registry that
	// were made as they were needed ([Derived]); 0 for all others. That of one that was
	// removed goes to the next.
	Derived int

	// Policies describes each policy, outermost first. Once the pipeline is closed
	// an entry of kind "pipeline" comes last, with what it has refused since.
	Policies []PolicySnapshot
}

// PolicySnapshot is the state of one policy in a pipeline.
type PolicySnapshot struct { //nolint:revive // Snapshot is the pipeline's
	Name   string // instance name, unique in the pipeline
	Kind   string // kind of policy
	Shadow bool   // it only watches
	Waits  bool   // calls may stand in its queue, or wait for what it asks

	// Rejected counts refusals by reason. In shadow mode it counts the refusals
	// that would have been.
	Rejected [NumReasons]uint64

	// Exactly one of these is set for the policies of this module; none for
	// others.
	Breaker  *BreakerSnapshot
	Bulkhead *BulkheadSnapshot
	Limiter  *LimiterSnapshot
	Retry    *RetrySnapshot
	Hedge    *HedgeSnapshot
	Fallback *FallbackSnapshot
	Timeouts *Timeouts
}

// BreakerSnapshot is the state of a breaker.
type BreakerSnapshot struct {
	State      string    // one of BreakerStates
	Since      time.Time // when the state began
	Generation uint64
	Why        string        // why the state was entered
	Note       string        // who and why, of the command in force
	RetryAfter time.Duration // while open, time to the next probe; of a forced state, to its end; 0 when it has none

	// Share is the share of calls that are let through: 1 while closed, 0 while open
	// and, apart from the probes, half-open, and between them while recovering.
	Share float64

	Calls, Failures, Slow     uint64  // in the window; while half-open, of its probes
	Consecutive               uint64  // failed calls since the last one that succeeded, when that rule is on
	FailureRatio, SlowRatio   float64 // of the window; 0 when it is empty
	FailureThreshold          float64 // 0 when the rule is off
	SlowThreshold             float64 // 0 when the rule is off
	CountThreshold            uint64  // of Failures; 0 when the rule is off
	ConsecutiveThreshold      uint64  // 0 when the rule is off
	MinCalls                  uint64
	ProbesInFlight, MaxProbes int
	Opened                    uint64 // how often it opened since the start

	// While Observing, by command, the breaker decides and lets through what it would
	// refuse. Spared counts those calls since the start.
	Observing bool
	Spared    uint64

	// Of a keyed breaker; all 0 otherwise. State is then that of the key which is
	// worst off, and the figures are sums over all keys.
	Keys, MaxKeys         int    // in the table, and at most
	OpenKeys, MaxOpenKeys int    // open or half-open, and at most at the present number of keys
	Evicted               uint64 // keys that have left the table since the start
	Capped                uint64 // openings that MaxOpenKeys has prevented
}

// BreakerStates lists every state a breaker can report, in the order of its cycle. A
// throttle is throttling or closed.
func BreakerStates() []string {
	return []string{"closed", "open", "half_open", "recovering", "forced_open", "forced_closed", "throttling"}
}

// BulkheadSnapshot is the state of a bulkhead. What is in flight are permits of a
// semaphore and functions on the workers of a pool; what waits are calls.
//
// A semaphore does not time what it lets in: that is [Snapshot] Latency, and the
// number of completed attempts is in Snapshot.Attempts.
type BulkheadSnapshot struct {
	InFlight, Limit     int
	Waiting, MaxWaiters int
	MostWaiting         int // largest Waiting so far
	HighWater           int // largest InFlight so far
	Reserve             int // permits that only calls of high priority get

	// Wait holds how long attempts stood in the queue, whatever became of them.
	// Those that found room at once are not in it. Empty when nobody may wait.
	Wait Latency

	// Of a limit that is found at run time: its bounds, and how often it was found
	// anew from the start. All 0 otherwise.
	MinLimit, MaxLimit int
	Rebased            uint64

	// Run holds how long every function ran that ended on a worker of a pool, however it
	// did; of a pool of connections, every statement, without the wait for a connection.
	Run Latency

	// Of a pool; all 0 otherwise.
	Workers      int    // goroutines, idle ones included
	Idle         int    // goroutines that have nothing to do
	Orphans      int    // functions in flight whose callers have left
	Completed    uint64 // functions that ended on a worker
	Abandoned    uint64 // callers that left while their function ran
	Expired      uint64 // calls whose context ended in the queue: they never ran
	CallerRan    uint64 // functions run by their own callers, the queue being full
	OrphanPanics uint64 // panics of functions whose callers had left: nobody was told
	Overloaded   bool   // the queue has not been empty for long, and is shed
}

// LimiterSnapshot is the state of a rate limiter.
type LimiterSnapshot struct {
	Tokens float64 // available now; negative while reserved ahead
	Burst  float64
	Rate   float64 // tokens per second

	// Of a limiter whose callers may wait. Delay is how long one that comes now, at
	// a cost of 1, has to, or would have to if it may not.
	Waiting, MaxWaiters int
	Delay               time.Duration

	// Warmth is how far a limit that has to warm up has come: 0 when cold, 1 when
	// Rate is the full one. 0 for others.
	Warmth float64

	// At most one of these is set, for what the limiter has beside a limit.
	Keyed    *KeyedSnapshot    // it has a limit for each key; the above is that of a new key
	Feedback *FeedbackSnapshot // its rate follows what the dependency says
	Load     *LoadSnapshot     // it sheds load; the above is 0
	Limits   []PolicySnapshot  // it has several limits at once: each of them; the above is that of the scarcest
	Lanes    []LaneSnapshot    // it is divided into lanes, in this order of precedence; the above is that of all together, and the shortest Delay

	// Shared is set when the limit is one for several processes, kept in a store.
	// Tokens are then those that this process can take without asking: leased ones,
	// or its share while it decides alone.
	Shared *SharedSnapshot
}

// LaneSnapshot is the state of one lane of a rate limiter.
type LaneSnapshot struct {
	Name                string
	Tokens, Burst, Rate float64 // as of a limiter
	Waiting, MaxWaiters int
	Delay               time.Duration      // how long a call that comes now has to wait, or would have to if it may not
	Admitted            uint64             // calls let in
	Rejected            [NumReasons]uint64 // calls refused, by reason
	Yielded             uint64             // calls that were held back for another lane at first
	Borrowed            uint64             // tokens taken from what other lanes did not need
}

// KeyedSnapshot is the state of a limiter with a limit for each key.
type KeyedSnapshot struct {
	Keys, MaxKeys int // remembered, and at most
	Exceptions    int // keys with a limit of their own, which are not among Keys

	// Overflowed counts the calls that had to share the bucket of those for which
	// there was no room.
	Overflowed uint64

	// Top are the keys with the most calls of late, about ten. They come from
	// callers: show them, but do not make labels of them.
	Top []KeySnapshot
}

// KeySnapshot is what a limiter with a limit for each key has noted of one of them.
// Both figures are estimates.
type KeySnapshot struct {
	Key     string
	Calls   uint64 // of late, refused ones included
	Refused uint64
}

// FeedbackSnapshot is the state of a limiter whose rate follows what the dependency
// says. Its rate now is that of the LimiterSnapshot.
type FeedbackSnapshot struct {
	Floor, Ceiling float64       // bounds of the rate, per second
	Drain          time.Duration // time until calls are let in again; 0 when they are
	Pushbacks      uint64        // answers that asked to slow down, from the start
	Decreases      uint64        // how often the rate was lowered, from the start
}

// LoadSnapshot is the state of a limiter that sheds load.
type LoadSnapshot struct {
	Overloaded bool          // it sheds now
	CPU        float64       // last reading, 1 is all there is; 0 when it is not read
	Delay      time.Duration // last reading of the queue delay; 0 when it is not read
	Failed     uint64        // readings that failed, from the start
	InFlight   int
	Limit      int           // of InFlight, while it sheds; 0 while nothing is known
	MinLatency time.Duration // the shortest of late
	Throughput float64       // calls per second, the highest of late
	Shed       [4]uint64     // calls refused from the start, by priority, the lowest first
}

// RetrySnapshot is the state of a retry policy.
type RetrySnapshot struct {
	MaxAttempts int // 0 is unlimited

	// Stopped counts the calls that failed and were not tried again, by why.
	Stopped [NumStops]uint64

	// HasBudget says whether there is a budget; the rest describes it. BudgetLevel
	// is what is left of it, from 0 to 1, and BudgetRemaining the retries that it
	// would allow now.
	HasBudget       bool
	BudgetKind      string // one of BudgetKinds
	BudgetLevel     float64
	BudgetRemaining float64

	// BudgetRatio is the number of retries that each first attempt pays for, that
	// each success pays for, or that each call in flight does. BudgetFirsts are first
	// attempts in the window, and BudgetRetries retries in it or in flight; those two
	// are 0 where they are not counted.
	BudgetRatio   float64
	BudgetFirsts  uint64
	BudgetRetries uint64

	BudgetTokens, BudgetMaxTokens float64 // of a budget of tokens
	BudgetInFlight                uint64  // calls in flight, of a budget that is a share of them
}

// BudgetKinds lists every kind of retry budget: a ratio of the first attempts in a
// window, tokens that failures take and successes give, and a share of the calls in
// flight.
func BudgetKinds() []string { return []string{"ratio", "tokens", "in_flight"} }

// HedgeSnapshot is the state of a hedge policy.
type HedgeSnapshot struct {
	MaxHedges int

	// Delay is how long an attempt that begins now may run before it is hedged; 0
	// while none is, because too few durations are known.
	Delay time.Duration

	// Of a delay that follows from durations: the quantile, how many durations the
	// window holds, and how many it must hold for a delay. All 0 for a fixed one.
	Quantile            float64
	Samples, MinSamples uint64

	Started    uint64 // hedges that ran
	Won        uint64 // of these, the ones whose answer the caller got
	Suppressed uint64 // hedges that were due, and for which the budget had none left
	Refused    uint64 // hedges that were due, and that a gate refused

	// HasBudget says whether there is a budget. BudgetKind is one of BudgetKinds,
	// BudgetLevel what is left of it, from 0 to 1, and BudgetRemaining the number of
	// hedges that it would allow now.
	HasBudget       bool
	BudgetKind      string
	BudgetLevel     float64
	BudgetRemaining float64
}

// FallbackSnapshot is the state of a fallback.
type FallbackSnapshot struct {
	Served   uint64 // answers given
	Failed   uint64 // attempts to answer that ended in an error or a panic
	Rejected uint64 // answers that the fallback's own gate did not let it make; not among Failed

	// Mapped counts the errors that were replaced by another, of a policy that does that;
	// all else is 0 then.
	Mapped uint64

	// At most one of these is set, for what the fallback has beside a function.
	Stale *StaleSnapshot // it remembers values
	Defer *DeferSnapshot // it hands the work to a queue

	Guard *PolicySnapshot // the gate that admits its answers; nil when it has none
}

// StaleSnapshot is the state of a cache of last good values. The counters count callers,
// from the start, unless they say otherwise.
type StaleSnapshot struct {
	Hits     uint64 // got a value that was fresh
	Misses   uint64 // found no value that may be served, and waited for a load
	Stale    uint64 // got a value past its freshness
	Negative uint64 // got an error that is remembered
	Shared   uint64 // of Misses, those who waited for a load that another one had begun

	Loads    uint64 // loads begun
	Failures uint64 // loads that ended in an error, remembered ones included
	Skipped  uint64 // refreshes not begun, since as many as allowed were running

	Entries    int           // values and errors remembered
	MaxEntries int           // of Entries; 0 when they are bounded by weight
	Weight     uint64        // of all entries; 0 when they are bounded by number
	MaxWeight  uint64        // of Weight; 0 when they are bounded by number
	Evicted    uint64        // entries dropped to make room, from the start
	Loading    int           // loads running now
	OldestAge  time.Duration // of the oldest value served past its freshness, from the start
	Fresh      time.Duration // settings: values are fresh for this long
	MaxAge     time.Duration // and are never served when older than this
}

// DeferSnapshot is the state of a fallback that hands work to a queue. The counters count
// tasks, from the start, as the producer sees them.
type DeferSnapshot struct {
	Accepted    uint64 // the queue has taken them
	Duplicates  uint64 // of Accepted, those that the queue had already
	Refused     uint64 // the queue refused them
	Unconfirmed uint64 // nobody knows: the connection or the time ended before the queue said so
	InFlight    int    // sent and neither accepted nor refused yet
	Connected   bool   // the last the queue's client knows of its connection
	Reconnects  uint64 // connections made after the first
}
