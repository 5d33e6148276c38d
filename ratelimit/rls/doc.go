// Package rls asks a rate-limit service that speaks the protocol of Envoy
// (envoy.service.ratelimit.v3 over gRPC), such as github.com/envoyproxy/ratelimit, whether a
// call may run: for those who run one already.
//
// A [Config] stands in a pipeline where a limit of package ratelimit would:
//
//	inventory, err := policy.New("inventory",
//		rls.Config{
//			Conn:   conn,
//			Domain: "shop",
//			Limits: []rls.Limit{{
//				Entries: []rls.Entry{{Key: "dependency", Value: "inventory"}},
//				Rate:    ratelimit.PerSecond(6000),
//			}},
//		},
//	)
//
// The service knows the limits; each is asked for by a descriptor. Rate and Burst are what it
// has been told, so that a share of them can stand in for it: what happens when the service
// does not answer is up to [sharedlimit.Settings].
package rls
