package main

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// metastable is a failure that outlives its cause. The dependency has a quarter more
// capacity than is asked for, loses four fifths of it for ten seconds, and has it back. What
// clients retry meanwhile fills its queue, and a full queue makes answers so late that
// they are retried.
func metastable(o options) scenario {
	const from, until = 60 * time.Second, 70 * time.Second
	with := func(name string, budget retry.BudgetSource) variant {
		return variant{name, fleet{
			clients: o.clients, length: o.length, seed: o.seed,
			capacity: func(at time.Duration) float64 {
				if at >= from && at < until {
					return 0.25 * float64(o.clients)
				}
				return 1.25 * float64(o.clients)
			},
			policies: func(*world, int) ([]policy.Policy, error) {
				return []policy.Policy{retry.Config{MaxAttempts: 3, Budget: budget}, policy.Timeouts{Attempt: patience}}, nil
			},
		}}
	}
	return scenario{
		name:  "metastable",
		title: "Retries keep a failure alive: capacity is lost from 60 s to 70 s",
		variants: []variant{
			with("no budget", retry.NoBudget{}),
			with("20 % and 10/s for each client", retry.BudgetConfig{}),
			with("20 %", retry.BudgetConfig{Ratio: 0.2, MinPerSecond: retry.Off}),
			with("10 %", retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}),
		},
		figures: func(w *world) []figure {
			before, end := w.sum(10*time.Second, from), w.sum(w.length-30*time.Second, w.length)
			return []figure{
				percent("answered before", before.good, before.calls),
				percent("answered at the end", end.good, end.calls),
				{"attempts per call at the end", float64(end.attempts) / float64(end.calls), "%.2f"},
				w.wellAfter(until),
			}
		},
		lines: []line{offered, load, answered, capacity},
	}
}
