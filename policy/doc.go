// Package policy is the core of breakwater: the pipeline that guards one
// dependency, and the vocabulary every policy speaks.
//
// A [Pipeline] holds the policies of one dependency. Gates (rate limit, bulkhead,
// breaker) decide whether an attempt may run; retry and fallback decide what
// follows an attempt that did not succeed. Nearly every call succeeds at its first
// attempt, so that path is short: enter each gate, run the function, leave each
// gate. It allocates nothing, reads the clock twice and takes no lock that other
// calls share.
//
// A call is a function of the package, not a method, so that it can return any type:
// policy.Do(ctx, pipeline, fn), or [Run] where there is nothing to return but an error.
// There are three ways to call, from comfortable to bare: [Do] with a closure,
// [DoWith] with an argument and a function that captures nothing, and
// [Pipeline.Enter] with [Handle.Leave] for adapters that hold a permit past the
// return of a function, such as until the end of a response body.
//
// A refusal is a [*RejectedError]; anything else is the dependency's own error,
// passed through:
//
//	if re, ok := errors.AsType[*policy.RejectedError](err); ok { … }
//
// Callers need [Pipeline], [Registry], [Do] and its kin, [For], [Timeouts], [Call], the
// errors and, to watch, [Snapshot] and [Observer]. The rest is for authors of policies
// and adapters.
//
// This package imports no policy package. Each of them (breaker, bulkhead,
// ratelimit, retry, fallback) imports this one, and hands its Config to [New].
package policy
