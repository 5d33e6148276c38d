// Package demo runs the same small service twice, side by side and under the same
// load, while a dependency goes through an incident: once the service calls its
// dependencies through a plain [net/http.Client] with three tries, once through
// breakwater pipelines.
//
// Everything is real and on loopback. Each of the two worlds has
//
//   - a service with a fixed number of handler slots, in which a request waits until
//     a slot is free or its user has left;
//   - a stock dependency of limited capacity, which follows a [script.Script]:
//     healthy, slow, failing, recovering, recovered. It works on a call to the end
//     even when its client has hung up, as servers do that do not watch for it;
//   - a price dependency, the neighbour, which is healthy all the time.
//
// Half of the requests need the stock, half the price. The worlds differ in nothing
// but the client their services call with.
package demo
