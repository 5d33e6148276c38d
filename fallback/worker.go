package fallback

// Depth is how many tasks a queue holds, by what they wait for.
type Depth struct {
	Ready   int // for a worker
	Running int // for their worker to finish; those it has only fetched included
	Waiting int // for their next attempt
	Dead    int // for a person: they are the dead letters
}

// WorkerSnapshot is what a worker has done since its start. The counters count attempts.
type WorkerSnapshot struct {
	Running   int    // handlers running now
	Done      uint64 // attempts that did the work
	Failed    uint64 // attempts that failed and are made again
	Postponed uint64 // attempts that were refused by a policy, or cut short by the worker's end; they do not count against the task
	Dead      uint64 // attempts after which the task went to the dead letters
}
