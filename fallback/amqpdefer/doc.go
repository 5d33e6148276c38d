// Package amqpdefer keeps deferred work in RabbitMQ: a [Queue] for [fallback.Defer] on the side
// that defers, and a [Worker] on the side that works.
//
// A task is accepted when the broker has confirmed it: it is persistent, in a quorum queue,
// and mandatory, so one that no queue would take is an error. Workers acknowledge a task by
// hand when it is done, so one that dies leaves its tasks to the others. What fails waits in
// a queue of its own for its next attempt; what fails too often, or with an error marked by
// policy.AsPermanent, goes through a dead-letter exchange to the dead letters. Both sides
// connect again when the connection is lost.
//
// For a queue called "breakwater" they declare the quorum queues "breakwater",
// "breakwater.dead" and, for each delay, "breakwater.retry.1s" and so on, and the exchange
// "breakwater.dead". RabbitMQ must be of version 3.10 or later.
package amqpdefer
