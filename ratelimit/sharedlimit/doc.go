// Package sharedlimit is what limits have in common whose counts are kept in a store that
// several processes share: how long the store may take, what decides while it cannot be
// asked, tokens taken ahead, and how such a limit stands in a pipeline.
//
// Use it through a package that knows a store: ratelimit/redislimit keeps the counts in
// Redis or Valkey, ratelimit/rls asks a rate-limit service. For a store of your own implement [Store] and hand it to [New].
//
// The [Limiter] is a [ratelimit.Limiter], so in a pipeline it takes the place of one that
// counts in memory.
package sharedlimit
