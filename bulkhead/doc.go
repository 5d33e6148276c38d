// Package bulkhead bounds how many calls to one dependency run at the same time, so
// that a dependency which hangs takes a known number of callers down with it and
// not the whole process. The picture is Michael Nygard's (Release It!, "Bulkheads"):
// a ship with compartments survives one leak.
//
// There are three, each a spec that is handed to policy.New as it is, and a live form
// to share between pipelines:
//
//   - [Semaphore] ([Permits], by [New]) is a number of permits and, if wanted, a
//     bounded queue in front of them. The call runs where it is: the cheapest, and
//     the one for nearly everything.
//   - [Pool] ([Workers], by [NewPool]) runs the calls on goroutines of its own. It is
//     for functions that do not heed their context: their callers go when the context
//     ends, and what hangs is a worker.
//   - [Adaptive] ([AdaptivePermits], by [NewAdaptive]) is a semaphore that finds its
//     limit from how long the calls take. It is for dependencies whose capacity
//     nobody knows, or that changes.
//
// # When to use it
//
// In front of every dependency that can become slow. A rate limit does not do this
// job: 1,000 calls a second against a dependency that takes 5 s are 5,000 calls in
// flight. Size it by Little's law, calls per second × seconds per call, with room
// above: see the page docs/howto/size-a-bulkhead.md.
//
// # When not to
//
// It bounds concurrency, not rate.
//
// # Waiting
//
// A semaphore by default makes nobody wait: with every permit taken the next call is
// refused at once. MaxWait allows a wait. A pool has a queue by default. Every wait
// is bounded in time and in number, always. Waiters are served by priority, and
// within one in the order in which they came; a full queue gives a place to a call of
// higher priority, and [Semaphore] Reserve keeps permits for those.
//
// # Nested calls
//
// A call that holds a permit, or a worker, and makes another call through the same
// bulkhead needs a second one. When all are held by such calls, none of the inner
// ones can get one: where nobody may wait they are refused at once, otherwise after
// MaxWait. It never ends in a deadlock, and it is still a mistake: give the inner
// calls a bulkhead of their own.
package bulkhead
