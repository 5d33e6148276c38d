package bulkhead

import (
	"math"
	"time"
)

// manyCalls is the mean concurrency above which [LimitFor] does not count call by
// call: random arrivals are a steady stream then.
const manyCalls = 1e6

// RefusedShare returns the share of calls, in [0, 1], that a semaphore with so many
// permits refuses, when calls arrive at random (Poisson) and would keep busy of the
// permits busy on average: Erlang's loss formula (A. K. Erlang, 1917), for whatever
// distribution the durations have. A busy that is not above 0 gives 0, and no permits
// give 1. It takes a step for each permit.
func RefusedShare(busy float64, permits int) float64 {
	if !(busy > 0) {
		return 0
	}
	share := 1.0
	for n := 1; n <= permits; n++ {
		// 1 / (1 + n / (busy × share)), written so that neither end overflows.
		share = busy * share / (float64(n) + busy*share)
		if math.IsNaN(share) {
			return 1 // more calls than a float can say
		}
	}
	return share
}

// LimitFor returns the smallest limit with which a semaphore refuses at most the
// given share of calls that come at random, rate of them a second, and take latency
// each on average. It is at least 1 and at most 2,147,483,647.
//
// The product of rate and latency is the mean number of calls in flight (Little's
// law); that many permits would refuse a quarter of the calls at 8 and 8 % at 100.
func LimitFor(rate float64, latency time.Duration, refused float64) int {
	busy := rate * latency.Seconds()
	switch {
	case !(busy > 0):
		return 1
	case busy > manyCalls:
		return int(min(max(math.Ceil(busy*(1-max(refused, 0))), 1), maxLimit))
	}
	share := 1.0
	for n := 1; ; n++ {
		share = busy * share / (float64(n) + busy*share)
		if share <= refused || share == 0 {
			return n
		}
	}
}

// QueueFor returns the length of queue that is worked off in the given time at so
// many calls a second: whoever stands further back waits for longer than that. It is
// at least 1 and at most 2,147,483,647.
func QueueFor(throughput float64, wait time.Duration) int {
	n := throughput * wait.Seconds()
	if !(n > 1) {
		return 1
	}
	return int(min(n, maxLimit))
}
