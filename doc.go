// Package breakwater is the root of a resilience toolkit for Go services: rate
// limits, circuit breakers, bulkheads, retries and fallbacks, composed into one
// pipeline for each dependency a service calls.
//
// It holds no code. Start with
// [github.com/breakwater-go/breakwater/policy], which has the pipeline and the
// functions that run a call through it; each policy is a package of its own next
// to it.
package breakwater
