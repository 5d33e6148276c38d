// Package grpcx puts a pipeline under a gRPC client and in front of a gRPC server, as
// interceptors for unary calls and for streams.
//
//	client := grpcx.NewClient(inventory, grpcx.ClientConfig{})
//	conn, err := grpc.NewClient(target, append(client.DialOptions(), creds)...)
//
// Every RPC of the connection is a call, every try of it an attempt. What gRPC's codes
// mean to a pipeline is in [KindOf], and what a refusal is to a gRPC caller in [CodeOf].
//
// # Client
//
// An RPC is sent again only if it says that it may reach the server twice: its method
// ([ClientConfig] Idempotent) or its context (policy.Call.Idempotent) does. Servers say when
// to come back in the trailer grpc-retry-pushback-ms and in the RetryInfo of their status;
// both are read. Retries by the service config of the connection would multiply with those
// of the pipeline, so [Client.DialOptions] turns them off.
//
// A stream is opened through the pipeline and keeps its permit until it ends. It counts as
// a success when it is open, and if it fails later that is corrected. Only the opening is
// retried. A stream that nobody reads to its end is over when its context is, or when the
// garbage collector finds it.
//
// # Server
//
// [Server] has a pipeline of its own, which may be nil, for limits on what comes in. It
// makes of the refusal of any pipeline below, however wrapped, a status that a gRPC caller
// understands: RESOURCE_EXHAUSTED for a caller over its limit, UNAVAILABLE for our own
// saturation or an open breaker, each with the time to come back.
//
// # Layers
//
// Where both sides are ours ([ClientConfig] Internal, [ServerConfig] Trust), a request says
// which attempt it is and how much it matters, so that layers which retry do not multiply.
// Deadlines travel in any case: gRPC sends them itself.
package grpcx
