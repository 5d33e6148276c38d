// Package bulkhead bounds how many calls to one dependency run at the same time, so
// that a dependency which hangs takes a known number of callers down with it and
// not the whole process. The picture is Michael Nygard's (Release It!, "Bulkheads"):
// a ship with compartments survives one leak.
//
// [Semaphore] describes a number of permits and, if wanted, a bounded queue in front
// of them. It is a spec: hand it to policy.New as it is, or make a live [Permits]
// with [New] to share it between pipelines or to use it by hand.
//
// # When to use it
//
// In front of every dependency that can become slow. A rate limit does not do this
// job: 1,000 calls a second against a dependency that takes 5 s are 5,000 calls in
// flight. Size it by Little's law, calls per second × seconds per call, with room
// above: see the page docs/reference/bulkhead.md.
//
// # When not to
//
// It bounds concurrency, not rate, and it runs the call on the caller's goroutine: a
// call that ignores its context keeps its permit for as long as it hangs.
//
// # Waiting
//
// By default nobody waits: with every permit taken the next call is refused at once.
// MaxWait allows a wait, and then both the time and the number of waiters are
// bounded, always. Waiters are served in the order in which they came, and a
// newcomer never overtakes one.
//
// # Nested calls
//
// A call that holds a permit and makes another call through the same bulkhead needs
// a second permit. When all permits are held by such calls, none of the inner ones
// can get one: without MaxWait they are refused at once, with it they are refused
// after MaxWait. It never ends in a deadlock, and it is still a mistake: give the
// inner calls a bulkhead of their own.
package bulkhead
