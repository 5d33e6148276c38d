package bulkhead

import "time"

// CoDel sheds a queue that does not empty. The zero value is off.
//
// A queue that empties now and then absorbs bursts, and is welcome to use all of
// MaxWait. One that has not been empty for Interval is no burst: more comes in than
// is served, and everybody waits in it for nothing. From then on, until it is empty
// again, nobody waits longer than Target, those that have are refused first, and the
// newest are served first: their callers are the most likely to be still there. It is
// the variant of Controlled Delay and the adaptive LIFO of Ben Maurer, "Fail at
// Scale" (ACM Queue 13/8, 2015), after Nichols and Jacobson, "Controlling Queue
// Delay" (2012).
type CoDel struct {
	// Target is the longest wait while the queue does not empty. Zero turns
	// shedding off; it must be below MaxWait, and at most Interval.
	Target time.Duration

	// Interval is how long the queue may go without being empty. Zero means 20 times
	// Target, as 100 ms are to the 5 ms of the source. It needs Target.
	Interval time.Duration
}

// defaultIntervals is the default of Interval, in Targets.
const defaultIntervals = 20

func (c CoDel) withDefaults() CoDel {
	if c.Target > 0 && c.Interval == 0 {
		c.Interval = c.Target * defaultIntervals
		if c.Interval/defaultIntervals != c.Target { // decades
			c.Interval = c.Target
		}
	}
	return c
}

// standing judges whether a queue empties. It belongs to one queue, is not safe for
// concurrent use, and learns the time from its caller.
type standing struct {
	cfg   CoDel     // effective values
	since time.Time // when the queue ceased to be empty
}

// filled is told that the queue has ceased to be empty.
func (s *standing) filled(now time.Time) { s.since = now }

// overloaded reports whether a queue that is not empty has been so for too long.
func (s *standing) overloaded(now time.Time) bool {
	return s.cfg.Target > 0 && now.Sub(s.since) >= s.cfg.Interval
}

// stale reports whether somebody who came at the given time has waited too long for
// a queue that is overloaded.
func (s *standing) stale(came, now time.Time) bool { return now.Sub(came) > s.cfg.Target }
