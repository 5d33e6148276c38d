// Package redisx sends the commands of a go-redis client through a pipeline.
//
//	rdb := redis.NewClient(&redis.Options{
//		Addr: "127.0.0.1:6379", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
//	})
//	_, err := redisx.Guard(rdb, sessions, redisx.Config{}) // sessions is a *policy.Pipeline
//
// Nothing else changes: commands, pipelines and transactions are called as before. A refusal
// is a [*policy.RejectedError], as the error of the command, and of each command of a pipeline.
//
// [redis.Nil] is a success. What Redis answers is classified by [KindOf]: an error about the
// command (WRONGTYPE, a syntax error) says that the server is healthy, one about the server
// (LOADING, CLUSTERDOWN, OOM) that it is not. To find no free connection in the client's pool is
// our own saturation and not the server's: a refusal by the policy "connections".
//
// A pipeline or transaction is one attempt, and its worst command decides how it ended.
// Commands that block ([Blocking]) are neither slow nor cut by timeouts. PubSub, and what
// go-redis sends to set up a connection, pass by.
package redisx
