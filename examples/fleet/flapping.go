package main

import (
	"time"
)

// flapping is a dependency that has for two minutes four fifths of the capacity that is
// asked for. All clients together overload it, all their breakers open, and all try it
// again.
func flapping(o options) scenario {
	const weak, well = 60 * time.Second, 180 * time.Second
	with := func(name string, jitter float64, ramp time.Duration) variant {
		c := breakerOf
		c.OpenFor, c.OpenJitter, c.RampFor = 10*time.Second, jitter, ramp
		return variant{name, fleet{
			clients: o.clients, length: min(o.length, 4*time.Minute), seed: o.seed,
			capacity: func(at time.Duration) float64 {
				if at >= weak && at < well {
					return 0.8 * float64(o.clients)
				}
				return 1.25 * float64(o.clients)
			},
			policies: behind(c),
		}}
	}
	return scenario{
		name:  "flapping",
		title: "An overloaded dependency: 80 % of the capacity that is needed, from 60 s to 180 s",
		variants: []variant{
			with("open for 10 s", 0, 0),
			with("open for 5 s to 10 s", 0.5, 0),
			with("open for 1 s to 10 s", 0.9, 0),
			with("open for 1 s to 10 s, and a ramp of 30 s", 0.9, 30*time.Second),
		},
		figures: func(w *world) []figure {
			during := w.sum(weak, well)
			idle := 0
			for t := weak; t < well; t += time.Second {
				if w.at(t).attempts < w.clients/20 {
					idle++
				}
			}
			return []figure{
				percent("answered", during.good, during.calls),
				{"idle seconds of 120", float64(idle), "%.0f"},
				{"answers too late", float64(during.wasted), "%.0f"},
				{"openings per client", float64(during.opened) / float64(w.clients), "%.1f"},
			}
		},
		lines: []line{offered, load, answered, capacity},
	}
}
