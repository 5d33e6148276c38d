// Package bench measures breakwater next to other libraries, in one run on one
// machine. It is a module of its own so that nobody who uses breakwater has to
// download what it is compared with.
package bench
