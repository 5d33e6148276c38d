// Package retry decides whether a call that failed is tried again, and when; and whether
// one that is slow gets another attempt beside it ([Hedge]).
//
// [Config] is a spec: hand it to policy.New as it is, or make a live [Retrier] with
// [New] to share it. The pipeline makes the attempts, each through all of its gates;
// this package only decides, and it does so before the wait: a retry that cannot
// happen in time is not slept for.
//
// # What is tried again
//
// Outcomes that say that the dependency may do better next time: failure, timeout and
// busy. An outcome that says to stay away (throttled) is tried again only when the
// dependency said when. A [Rule] for each of these kinds says otherwise. Never: success,
// a permanent error, a call that the caller gave up, a call that asked for it (NoRetry),
// one that is itself part of a retry by a layer above (policy.Hop), and, unless
// RetryRejected is set, an attempt that one of the pipeline's own gates refused.
//
// # When
//
// After an exponential backoff with full jitter: a random time between nothing and
// BaseDelay × Factor^(retries so far), capped at MaxDelay (Marc Brooker, "Exponential
// Backoff and Jitter", AWS Architecture Blog, 2015). There are constant and decorrelated
// backoffs too, and less jitter or none. When the dependency asked for a longer time
// (Retry-After, RFC 9110 §10.2.3) it gets it, up to MaxPushback.
//
// # How often
//
// As many times as MaxAttempts and, above all, the budget allow. A dependency that
// fails for everybody gets MaxAttempts times its load from plain retries, at the worst
// moment. A [Budget] bounds the retries of all callers together to a share of their
// first attempts (Google, Site Reliability Engineering, "Handling Overload"), so the
// load rises by that share and no more. There is one by default. A [TokenBudget] counts
// as gRPC does, an [InFlightBudget] as Envoy does.
package retry
