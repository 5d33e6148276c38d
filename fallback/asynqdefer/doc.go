// Package asynqdefer keeps deferred work in Redis, through the library asynq: a [Queue] for
// [fallback.Defer] on the side that defers, and a [Worker] on the side that works.
//
// A task that Redis has taken is done at least once, as far as Redis itself keeps it: an
// instance without an append-only file, or without a replica, loses what it had in memory.
// Tasks whose worker died are begun again when their lease has ended for good, which takes
// one to two minutes. Those that fail as often as MaxAttempts allows, or with an error
// marked by policy.AsPermanent, go to the dead letters, which asynq calls archived: it keeps
// the latest 10,000 of them for 90 days.
//
// Other clients of asynq, its command line and its web page can look into the same queue.
package asynqdefer
