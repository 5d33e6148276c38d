// Package script says how a dependency behaves over the course of a demo: how long
// it takes and whether it fails. It is pure: times are offsets from the start of the
// script.
package script

import (
	"fmt"
	"time"
)

// Phase is a stretch of time in which a dependency behaves in one way.
type Phase struct {
	// Name is unique in its script.
	Name string

	// For is how long the phase lasts. The last phase of a script lasts for ever;
	// its For only tells where the script's End is.
	For time.Duration

	// Service is the time that one call takes, when the whole of it falls into
	// this phase. It must be above 0.
	Service time.Duration

	// Fails says that calls which end in this phase end in an error.
	Fails bool
}

// Script is a sequence of phases. It must not be empty.
type Script []Phase

// The names of an incident's phases.
const (
	Healthy    = "healthy"
	Slow       = "slow"
	Failing    = "failing"
	Recovering = "recovering"
	Recovered  = "recovered"
)

// The indexes of an incident's phases in the script that [Incident] returns.
const (
	HealthyPhase = iota
	SlowPhase
	FailingPhase
	RecoveringPhase
	RecoveredPhase

	// Phases is their number.
	Phases
)

// Shortest is the shortest incident: in less time the slow phase ends before its
// effects can be seen.
const Shortest = 6 * time.Second

// An incident is described by shares of the run, and by limits, so that a long run
// is mostly the time before and after it: 25 % healthy, 22 % slow, 18 % failing, 8 %
// recovering, and the rest recovered.
const (
	maxSlow       = 6 * time.Second
	maxFailing    = 5 * time.Second
	maxRecovering = 3 * time.Second
)

// Incident returns the script of an incident that takes d, with calls that take
// service while the dependency is well. Durations below [Shortest] are an error.
func Incident(d, service time.Duration) (Script, error) {
	if d < Shortest {
		return nil, fmt.Errorf("a demo of %s is too short: want at least %s", d, Shortest)
	}
	share := func(percent int64) time.Duration { return d / 100 * time.Duration(percent) }
	s := Script{
		HealthyPhase: {Name: Healthy, For: share(25), Service: service},
		// A lock that nobody gives back: each call stands still for two seconds, or
		// until the phase ends.
		SlowPhase: {Name: Slow, For: min(share(22), maxSlow), Service: 2 * time.Second},
		// The dependency's own dependency times out. This takes longer than an
		// answer would, so the capacity is smaller than before.
		FailingPhase:    {Name: Failing, For: min(share(18), maxFailing), Service: 8 * service / 3, Fails: true},
		RecoveringPhase: {Name: Recovering, For: min(share(8), maxRecovering), Service: 3 * service / 2},
		RecoveredPhase:  {Name: Recovered, Service: service},
	}
	s[RecoveredPhase].For = d - s.Start(RecoveredPhase)
	return s, nil
}

// Steady returns the script of a dependency that always takes service.
func Steady(service time.Duration) Script {
	return Script{{Name: Healthy, Service: service}}
}

// At returns the index of the phase at time t. A time before the start belongs to
// the first phase, one after the end to the last.
func (s Script) At(t time.Duration) int {
	for i := range s[:len(s)-1] {
		if t -= s[i].For; t < 0 {
			return i
		}
	}
	return len(s) - 1
}

// Start returns the time at which phase i begins.
func (s Script) Start(i int) time.Duration {
	var t time.Duration
	for _, p := range s[:i] {
		t += p.For
	}
	return t
}

// End returns the time at which the script ends.
func (s Script) End() time.Duration { return s.Start(len(s)) }

// Finish returns the time at which a call ends that begins at time t, and the index
// of the phase it ends in. A call that spans phases makes progress in each at that
// phase's speed: one that stands still in a slow phase goes on when the phase ends.
func (s Script) Finish(t time.Duration) (end time.Duration, phase int) {
	left := 1.0 // share of the work to be done
	for i := s.At(t); ; i++ {
		need := time.Duration(left * float64(s[i].Service))
		if i == len(s)-1 {
			return t + need, i
		}
		have := s.Start(i+1) - t
		if need < have {
			return t + need, i
		}
		left -= float64(have) / float64(s[i].Service)
		t += have
	}
}
