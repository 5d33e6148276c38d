// Package breaker stops calling a dependency that fails or has become slow, and
// finds out with few calls whether it has recovered.
//
// A [Breaker] is closed while the dependency is well: calls run and are counted in
// a sliding window, of time or of calls. When one of its rules is reached (the share of
// failed calls, or of slow ones, the number of failures, or of failures in a row), it
// opens: calls are refused at once, without a wait and without a load on the
// dependency. After a while it is half-open: a few calls, the probes, are let through,
// and they alone decide whether it closes or opens again. On the way to closed it may be
// recovering: the load returns along a ramp.
//
// A [KeyedBreaker] is a breaker for each host, shard or route. A [Throttler] refuses a
// share of the calls instead of all or none.
//
// The pattern is Michael Nygard's (Release It!, 2007). The sliding window of
// buckets is that of Hystrix, the slow-call rule that of Sentinel and Resilience4j,
// the generation that tells late results from present ones that of gobreaker, the bound
// on open keys and the growth of open times those of Envoy's outlier detection, and the
// throttle that of the SRE book ("Handling Overload").
//
// # When to use it
//
// A breaker is for calls to something that can be down as a whole: a service, a
// database, a disk. It saves the caller the wait for a timeout, and the dependency
// the load that keeps it down. The slow-call rule matters more than it looks: most
// outages begin as latency, and an error ratio sees nothing until calls time out.
//
// A throttle is for a dependency that answers and sheds load: it keeps it as busy as
// it can be, where a breaker would swing between nothing and too much.
//
// # When not to
//
// A breaker does not bound concurrency or rate: below its threshold it lets
// everything through, so put a bulkhead next to it. A single one is wrong in front of
// something made of independent parts, such as shards or tenants: one sick part of
// ten reaches no threshold, or takes the nine others with it. Use a [Keyed] there.
package breaker
