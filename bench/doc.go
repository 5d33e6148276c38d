// Package bench measures breakwater next to other libraries in the same process run:
// whole pipelines and single policies. It is a module of its own, so that nobody else
// has to download the peers; it is never released.
//
// `make bench-peers` prints the table.
package bench
