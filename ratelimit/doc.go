// Package ratelimit bounds how many calls per second reach a dependency.
//
// [TokenBucket] is the limiter to begin with: tokens arrive at a steady rate, up to
// a burst of them can be stored, a call takes one or more, and a call that finds too
// few is refused at once. Use it to keep to a quota, to keep a dependency below
// what it can do, or as a backstop far above the usual traffic:
//
//	inventory, err := policy.New("inventory",
//		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 600},
//	)
//
// In a pipeline the limiter never waits. A refusal is a [*policy.RejectedError]
// that matches [ErrLimited] and says exactly when the tokens will be there. [New]
// gives the live [Bucket], to be shared by pipelines or used by hand: by
// [Bucket.Allow], or, where waiting is wanted, by [Bucket.Wait] and
// [Bucket.Reserve].
//
// A rate limit is not a limit on concurrency: at 1,000 calls per second of 5 s each,
// 5,000 are in flight. Put a bulkhead next to it.
//
// # Algorithm
//
// The token bucket of J. Turner, "New directions in communications (or which way to
// the information age?)", IEEE Communications Magazine, 1986; in form it is a
// virtual-scheduling counter as in ITU-T I.371 (GCRA), but counting tokens and not
// time, so that neither a rate above one per nanosecond nor a burst of billions
// needs a case of its own. Its whole state is one integer, changed by one
// compare-and-swap. See [Bucket].
package ratelimit

// kind is the kind of these policies, and their default instance name.
const kind = "ratelimit"
