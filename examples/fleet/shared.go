package main

import (
	"context"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

const (
	sharedNodes = 40
	roundTrip   = time.Millisecond
)

// sharedLimit is one limit for the clients of forty nodes, which ask for twice as much.
// The nodes are not equally busy: the first has two fifths of the clients, the last one
// in 160.
func sharedLimit(o options) scenario {
	limit := float64(o.clients) / 2
	with := func(name string, s sharedlimit.Settings) variant {
		var st *store
		return variant{name, fleet{
			clients: o.clients, length: min(o.length, 2*time.Minute), seed: o.seed,
			capacity: func(time.Duration) float64 { return 5 * float64(o.clients) },
			nodes:    sharedNodes,
			on: func(client int) int {
				x := float64(client) / float64(o.clients)
				return int(sharedNodes * x * x * x * x)
			},
			policies: func(w *world, node int) ([]policy.Policy, error) {
				l := sharedlimit.Limit{Rate: ratelimit.PerSecond(limit), Burst: int(limit) / 2}
				if node == 0 {
					b, err := ratelimit.New("store", ratelimit.TokenBucket{Rate: l.Rate, Burst: l.Burst})
					if err != nil {
						return nil, err
					}
					st = &store{world: w, bucket: b}
				}
				s.Nodes = sharedNodes
				p, err := sharedlimit.New("shared", "", st, []sharedlimit.Limit{l}, s)
				return []policy.Policy{p}, err
			},
		}}
	}
	return scenario{
		name:  "shared",
		title: "One limit for 40 nodes, which ask for twice as much",
		variants: []variant{
			with("each call asks the store", sharedlimit.Settings{}),
			with("leases of 1 s", sharedlimit.Settings{LeaseFor: time.Second}),
			with("a fixed share for each node", sharedlimit.Settings{LocalOnly: true}),
		},
		figures: func(w *world) []figure {
			from := 10 * time.Second // by then the burst at the beginning is used up
			all := w.sum(from, w.length)
			worst := 0.0
			for t := from; t < w.length; t += time.Second {
				worst = max(worst, math.Abs(float64(w.at(t).attempts)/limit-1))
			}
			return []figure{
				percent("admitted of the limit", all.attempts, int(limit*(w.length-from).Seconds())),
				{"worst second off by", 100 * worst, "%.1f %%"},
				{"trips per call", float64(all.trips) / float64(all.calls), "%.3f"},
				{"mean wait of admitted", all.waited.Seconds() * 1000 / float64(all.attempts), "%.2f ms"},
			}
		},
		lines: []line{offered, load, {"limit", func(*world, int) float64 { return limit }}},
	}
}

// store keeps the limit, a network away.
type store struct {
	*world

	bucket *ratelimit.Bucket
	asked  int
}

// Take implements [sharedlimit.Store].
func (s *store) Take(_ context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	var slot time.Duration
	s.count(s.now(), func(x *second) {
		x.trips++
		slot = slots + time.Duration(s.asked%slots)
		s.asked++
	})
	s.sleepUntil(s.now()+roundTrip/2, slot)
	now := time.Now()
	n := min(r.Want, max(int(s.bucket.Tokens(now)), r.Least))
	after, ok := s.bucket.Take(now, n)
	s.sleepUntil(s.now()+roundTrip/2, slot)
	if !ok {
		return sharedlimit.Grant{RetryAfter: after}, nil
	}
	return sharedlimit.Grant{Tokens: n, Expires: time.Second}, nil
}

// GiveBack implements [sharedlimit.Store].
func (s *store) GiveBack(_ context.Context, _ *sharedlimit.Request, n int) error {
	s.bucket.Refund(time.Now(), n)
	return nil
}

// Probe implements [sharedlimit.Store].
func (s *store) Probe(context.Context) error { return nil }
