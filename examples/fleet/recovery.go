package main

import (
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// breakerOf is the breaker of a client with one call per second, which is too few for a
// ratio in a window.
var breakerOf = breaker.Config{
	FailureRatio: breaker.Off, ConsecutiveFailures: 3,
	OpenFor: 5 * time.Second, OpenJitter: 0.5, Probes: 1, Successes: 1,
}

// behind returns the policies of clients with a breaker, whose openings are counted.
func behind(c breaker.Config) makePolicies {
	return func(w *world, _ int) ([]policy.Policy, error) {
		c := c
		c.OnStateChange = func(ch breaker.StateChange) {
			if ch.To == "open" {
				w.count(ch.Time.Sub(w.started), func(s *second) { s.opened++ })
			}
		}
		return []policy.Policy{c, policy.Timeouts{Attempt: patience}}, nil
	}
}

// recovery is a dependency that was down for half a minute and comes back cold: with a
// fifth of the capacity that is asked for, and all of it, and more, a minute later.
func recovery(o options) scenario {
	const down, back, warm = 60 * time.Second, 90 * time.Second, 150 * time.Second
	cold := func(at time.Duration) float64 {
		switch {
		case at >= down && at < back:
			return 0
		case at >= back && at < warm:
			return (0.2 + 1.05*(at-back).Seconds()/(warm-back).Seconds()) * float64(o.clients)
		}
		return 1.25 * float64(o.clients)
	}
	with := func(name string, ramp time.Duration) variant {
		c := breakerOf
		c.RampFor = ramp
		return variant{name, fleet{
			clients: o.clients, length: min(o.length, 4*time.Minute), seed: o.seed,
			capacity: cold, policies: behind(c),
		}}
	}
	return scenario{
		name:     "recovery",
		title:    "Load returns to a cold dependency: down from 60 s to 90 s, warm at 150 s",
		variants: []variant{with("as a step", 0), with("as a ramp of 60 s", time.Minute)},
		figures: func(w *world) []figure {
			after := w.sum(back, w.length)
			most := 0.0
			for t := back; t < warm; t += time.Second {
				most = max(most, float64(w.at(t).attempts)/w.capacity(t))
			}
			return []figure{
				{"most load, by capacity", most, "%.2f"},
				{"answers too late", float64(after.wasted), "%.0f"},
				{"breakers opened again", float64(after.opened), "%.0f"},
				{"calls lost since it is back", float64(after.failed), "%.0f"},
				w.wellAfter(back),
			}
		},
		lines: []line{offered, load, answered, capacity},
	}
}
