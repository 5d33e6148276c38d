// Package connectx puts a pipeline under a Connect client and in front of a Connect handler,
// as interceptors for unary calls and for streams, over any of the protocols that
// connectrpc.com/connect speaks.
//
//	client := pingv1connect.NewPingServiceClient(http.DefaultClient, url,
//		connect.WithInterceptors(connectx.NewClient(inventory, connectx.ClientConfig{})))
//
// Every RPC is a call, every try of it an attempt. What codes mean to a pipeline is in
// [KindOf], and what a refusal is to a caller in [CodeOf]; both are those of grpcx.
//
// # Client
//
// An RPC is sent again only if it says that it may reach the server twice: its definition
// (option idempotency_level), [ClientConfig] Idempotent or its context
// (policy.Call.Idempotent) does. There are no hedges, since connect does not let an
// interceptor make a second request, and for the same reason a pipeline that runs its
// attempts on a pool makes one attempt. For hedges put httpx.Transport into the HTTP client.
//
// A stream keeps its permit until it ends. It counts as a success when it begins, and if it
// fails later that is corrected. A stream that nobody closes is over when its context is, or
// when the garbage collector finds it.
//
// # Server
//
// [Server] has a pipeline of its own, which may be nil, for limits on what comes in. It makes
// of the refusal of any pipeline below, however wrapped, an error that a caller understands:
// resource_exhausted for a caller over its limit, unavailable for our own saturation or an
// open breaker, each with the time to come back.
//
// # Layers
//
// Where both sides are ours ([ClientConfig] Internal, [ServerConfig] Trust), a request says
// which attempt it is and how much it matters, so that layers which retry do not multiply.
// Deadlines travel in any case: connect sends them itself.
package connectx
