// Package hop holds the names and formats of the marks by which services tell each other
// about retries and deadlines: which attempt a request is, how long somebody waits for
// it, how much it matters, and that a failure is not to be retried.
//
// The marks of a request are headers that Envoy uses for the same, and metadata that gRPC
// does; what a layer of ours adds has a name of its own. Package httpx sends and reads
// them over HTTP. Adapters for other protocols do so with the functions here, and keep
// what they read in a [policy.Hop], which pipelines obey.
//
// Parsing is strict and bounded: what is not exactly in the format counts as absent, and
// no mark makes a number larger than the bounds here. Whether a peer's marks are to be
// believed is not decided here.
package hop
