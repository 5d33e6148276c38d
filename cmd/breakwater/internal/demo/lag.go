package demo

import (
	"sync"
	"time"
)

// How often the lag is measured, and from when on a measurement is a stall: about the
// time in which a healthy stock dependency answers.
const (
	lagEvery  = 5 * time.Millisecond
	stallFrom = 25 * time.Millisecond
)

// A stall of half the time that the protected world gives an attempt may decide what
// becomes of it, and so may shorter ones, one upon the other.
const (
	largeStall = 150 * time.Millisecond
	largeShare = 0.1
)

// Stalls says for how long the demo had something to do and did not get a processor.
// That is the doing of neither world, and makes both look ill.
type Stalls struct {
	Longest float64 `json:"longest_ms"`
	Sum     float64 `json:"sum_ms"` // of those of 25 ms or more

	// Large says that they may have decided what the worlds did: the longest was
	// 150 ms or more, or the sum 10 % of the run.
	Large bool `json:"large"`
}

// lag measures by how much sleeps last longer than they should. It is safe for
// concurrent use.
type lag struct {
	mu           sync.Mutex
	longest, sum time.Duration
}

// watch measures until done is closed.
func (l *lag) watch(done <-chan struct{}) {
	tick := time.NewTimer(lagEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-done:
			return
		case <-tick.C:
			// Not the time that the channel hands over: that is when the timer went
			// off, and this goroutine may have waited for longer.
			now := time.Now()
			l.add(now.Sub(last) - lagEvery)
			last = now
			tick.Reset(lagEvery)
		}
	}
}

func (l *lag) add(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, late)
	if late >= stallFrom {
		l.sum += late
	}
}

// stalls returns what was measured in a run of the given length.
func (l *lag) stalls(run time.Duration) Stalls {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := func(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }
	return Stalls{
		Longest: ms(l.longest),
		Sum:     ms(l.sum),
		Large:   l.longest >= largeStall || l.sum > 0 && l.sum.Seconds() >= largeShare*run.Seconds(),
	}
}
