// Package bench measures breakwater's pipeline next to other libraries in the same
// process run. It is a module of its own, so that nobody else has to download the
// peers; it is never released.
//
// `make bench-peers` prints the table.
package bench
