// Package redislimit keeps a rate limit in Redis or Valkey, so that a fleet of processes
// has one limit and not one each.
//
// A [Config] stands in a pipeline where a limit of package ratelimit would:
//
//	inventory, err := policy.New("inventory",
//		redislimit.Config{
//			Client: rdb,
//			Limits: []redislimit.Limit{{
//				Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 600},
//			}},
//		},
//	)
//
// A call is decided by one script that runs in the store: one round trip, atomic, by the
// store's clock, with integers only. Several limits of a call are decided by one script
// too, all or nothing. [NewClient] makes a client that gives up in time; what happens when
// the store does not answer is up to [sharedlimit.Settings].
//
// It works with a single server, with Sentinel and with a cluster: Redis from version 6.2
// on, and Valkey.
//
// # Algorithms
//
// [TokenBucket] is the generic cell rate algorithm of ITU-T I.371 in microseconds, with the
// fraction kept, so that nothing is rounded. [FixedWindow] counts from the first call of a
// key. [SlidingWindow] weighs the count of the last window by how much of it is still in
// sight, as Cloudflare described it in 2017. [SlidingLog] remembers each call.
package redislimit
