// Package httpx puts a pipeline under an [http.Client], and one in front of an
// [http.Handler]. [Transport] makes an [http.RoundTripper] of a pipeline, so that every
// request of the client is a call and every try of a request an attempt.
//
//	client := &http.Client{Transport: httpx.Transport(inventory, nil)}
//
// It follows the contract of RoundTripper to the letter: the caller's request is
// never modified, its body is closed in every case, and the answer is a response or an
// error, never both. A refusal is a [*policy.RejectedError], which [errors.As] finds
// through the [*url.Error] of the client.
//
// # What counts as what
//
// A response is judged by its status: 5xx is a failure, 503 busy, 429 throttled, 408 a
// timeout, and 501, 505 and the rest of 4xx are permanent: an answer that another
// attempt will not change. Config.Classify has the first word. Retry-After (RFC 9110
// §10.2.3) is read from responses that another attempt may change, in seconds or as a
// date.
//
// # What is retried
//
// If the pipeline retries at all, a request is retried when it may reach the server
// twice ([IsIdempotent], in the words of RFC 9110 §9.2.2) and when its body can be sent
// again through GetBody. A request without one is never sent with an empty or half a
// body: what its first attempt gave is what the caller gets.
//
// # Bodies
//
// Breaker and retry budget are told the outcome at the response's header. Permits of
// a bulkhead, and the attempt's context, are kept until the body has been read to its
// end or closed, and a body that breaks off corrects a success to a failure. The
// attempt's timeout bounds the time to the header; the body is bounded by the
// caller's context and, where they are set, by Config.BodyTimeout and
// Config.BodyIdleTimeout. A body that nobody closed is closed when the garbage collector
// finds it.
//
// A response that is not returned, because another attempt follows, is drained within
// limits and closed before the wait, so that it holds neither a permit nor a
// connection through it.
//
// # Many dependencies
//
// One pipeline is for one dependency. Where a client talks to many, Config.Choose picks the
// pipeline of each request: by host ([Hosts]), by route ([Routes]) or by a function.
//
// # Layers
//
// Where the server is one of ours (Config.Internal), a request says which attempt it is
// and how long it will be waited for. [Hop] is the middleware that reads this in the
// server, so that layers which retry do not multiply.
//
// # Servers
//
// [Server] puts a pipeline in front of an [http.Handler], and makes answers of refusals, those
// of pipelines that the handler calls included:
//
//	server, err := httpx.NewServer(inbound, httpx.ServerConfig{})
//	…
//	http.ListenAndServe(":8080", server.Handler(mux))
package httpx
