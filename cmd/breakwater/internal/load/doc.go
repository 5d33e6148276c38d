// Package load sends an open-loop stream of HTTP requests: each at its due time, whether
// or not earlier ones have been answered. It counts what came back by the second in which
// the request was due, and measures latencies from that due time, so that a slow target
// cannot hide its slowness by holding up the load.
//
// It is careful about whom it meets: a target that is not on loopback has to be owned by
// word, and connections go to the addresses that were looked at, and to no others.
package load
