package dashboard

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Detail is one dependency in full.
type Detail struct {
	At       int64      `json:"at"`
	Card     Card       `json:"card"`
	Policies []Stage    `json:"policies"` // outermost first
	Answers  []Answer   `json:"answers"`
	Changes  []Change   `json:"changes"`  // newest first
	Refusals []Incident `json:"refusals"` // newest first
	Failures []Incident `json:"failures"` // newest first
	Warnings []string   `json:"warnings,omitempty"`

	// Settings are those of the policies that are made of a configuration, outermost first.
	Settings []PolicySettings `json:"settings,omitempty"`

	Kept bool `json:"history"` // whether there is a history
}

// Stage is a policy in its place in the pipeline.
type Stage struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`
	Shadow bool    `json:"shadow,omitempty"`
	Words  string  `json:"words"` // how it is, in a sentence
	Gauges []Gauge `json:"gauges,omitempty"`

	Refused []Refused         `json:"refused,omitempty"`      // per second
	Total   map[string]uint64 `json:"refusedTotal,omitempty"` // from the start

	Breaker *Breaker `json:"breaker,omitempty"`
	Keys    []Key    `json:"keys,omitempty"` // for viewers who may see them
	Lanes   []Gauge  `json:"lanes,omitempty"`
	Offers  *Offers  `json:"offers,omitempty"` // what can be changed, for viewers who may
}

// Gauge is a figure against its bound.
type Gauge struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Max   float64 `json:"max,omitempty"` // 0 when there is none
	Unit  string  `json:"unit,omitempty"`
	Full  bool    `json:"full,omitempty"` // much is good: tokens and a budget, not what is in use
}

// Breaker is the state machine of a breaker.
type Breaker struct {
	State       string  `json:"state"`
	Since       int64   `json:"since"`
	Next        int64   `json:"next,omitempty"`
	Follows     string  `json:"follows,omitempty"` // what follows by itself, in words
	Why         string  `json:"why"`
	Share       float64 `json:"share"`
	Calls       uint64  `json:"calls"`
	MinCalls    uint64  `json:"minCalls"`
	Failures    uint64  `json:"failures"`
	Slow        uint64  `json:"slow"`
	Failure     float64 `json:"failureRatio"`
	SlowRatio   float64 `json:"slowRatio"`
	FailureAt   float64 `json:"failureThreshold,omitempty"`
	SlowAt      float64 `json:"slowThreshold,omitempty"`
	Count       uint64  `json:"countThreshold,omitempty"`
	Consecutive uint64  `json:"consecutive,omitempty"`
	RowAt       uint64  `json:"consecutiveThreshold,omitempty"`
	Probes      int     `json:"probes"`
	MaxProbes   int     `json:"maxProbes"`
	Opened      uint64  `json:"opened"`
	Observing   bool    `json:"observing,omitempty"`
	Spared      uint64  `json:"spared,omitempty"`
	Keys        int     `json:"keys,omitempty"`
	OpenKeys    int     `json:"openKeys,omitempty"`
}

// Key is one of the keys with the most calls of a keyed limit.
type Key struct {
	Key     string `json:"key"`
	Calls   uint64 `json:"calls"`
	Refused uint64 `json:"refused"`
}

// newStage describes a policy.
func newStage(s span, p *policy.PolicySnapshot, ch *policy.StateChange, v Viewer) Stage {
	now := s.to.Time
	st := Stage{Name: clean(p.Name, maxText), Kind: clean(p.Kind, maxText), Shadow: p.Shadow, Words: policyWords(p, now)}
	for r := range policy.NumReasons {
		if p.Rejected[r] > 0 {
			if st.Total == nil {
				st.Total = map[string]uint64{}
			}
			st.Total[r.String()] = p.Rejected[r]
		}
		if n := s.refused(p, r); n > 0 {
			st.Refused = append(st.Refused, Refused{st.Name, r.String(), round(n)})
		}
	}
	switch {
	case p.Breaker != nil:
		st.Breaker = newBreaker(p.Breaker, ch, now)
	case p.Bulkhead != nil:
		b := p.Bulkhead
		st.Gauges = append(st.Gauges, Gauge{Label: "in flight", Value: float64(b.InFlight), Max: float64(b.Limit)})
		if b.MaxWaiters > 0 {
			st.Gauges = append(st.Gauges, Gauge{Label: "waiting", Value: float64(b.Waiting), Max: float64(b.MaxWaiters)})
		}
		st.Gauges = append(st.Gauges, Gauge{Label: "most so far", Value: float64(b.HighWater)})
	case p.Limiter != nil:
		st.limiter(p.Limiter, v)
	case p.Retry != nil && p.Retry.HasBudget:
		most := math.Max(p.Retry.BudgetRatio*float64(p.Retry.BudgetFirsts), p.Retry.BudgetRemaining)
		st.Gauges = append(st.Gauges, Gauge{Label: "retries left", Value: round(math.Max(p.Retry.BudgetRemaining, 0)), Max: round(finite(most)), Full: true})
		st.Gauges = append(st.Gauges, Gauge{Label: "retries", Value: round(s.retries()), Unit: "/s"})
	case p.Fallback != nil:
		served, _ := s.served()
		st.Gauges = append(st.Gauges, Gauge{Label: "answers", Value: round(served), Unit: "/s"})
	}
	return st
}

func (st *Stage) limiter(l *policy.LimiterSnapshot, v Viewer) {
	if l.Load != nil {
		st.Gauges = append(st.Gauges, Gauge{Label: "in flight", Value: float64(l.Load.InFlight), Max: float64(l.Load.Limit)})
		if l.Load.CPU > 0 {
			st.Gauges = append(st.Gauges, Gauge{Label: "CPU", Value: round(l.Load.CPU), Max: 1})
		}
		return
	}
	st.Gauges = append(st.Gauges, Gauge{Label: "tokens", Value: round(l.Tokens), Max: round(l.Burst), Full: true})
	st.Gauges = append(st.Gauges, Gauge{Label: "rate", Value: round(l.Rate), Unit: "/s"})
	if l.MaxWaiters > 0 {
		st.Gauges = append(st.Gauges, Gauge{Label: "waiting", Value: float64(l.Waiting), Max: float64(l.MaxWaiters)})
	}
	if k := l.Keyed; k != nil {
		st.Gauges = append(st.Gauges, Gauge{Label: "keys", Value: float64(k.Keys), Max: float64(k.MaxKeys)})
		if v.Private {
			for _, top := range k.Top {
				st.Keys = append(st.Keys, Key{clean(top.Key, maxText), top.Calls, top.Refused})
			}
		}
	}
	for _, lane := range l.Lanes {
		st.Lanes = append(st.Lanes, Gauge{Label: clean(lane.Name, maxText), Value: round(lane.Tokens), Max: round(lane.Burst), Full: true})
	}
	for i := range l.Limits {
		if part := l.Limits[i].Limiter; part != nil {
			st.Lanes = append(st.Lanes, Gauge{Label: clean(l.Limits[i].Name, maxText), Value: round(part.Tokens), Max: round(part.Burst), Full: true})
		}
	}
}

func newBreaker(b *policy.BreakerSnapshot, ch *policy.StateChange, now time.Time) *Breaker {
	d := &Breaker{
		State: b.State, Since: b.Since.UnixMilli(), Follows: nextWords(b), Why: whyWords(b, ch), Share: round(b.Share),
		Calls: b.Calls, MinCalls: b.MinCalls, Failures: b.Failures, Slow: b.Slow,
		Failure: round(b.FailureRatio), SlowRatio: round(b.SlowRatio), FailureAt: round(b.FailureThreshold), SlowAt: round(b.SlowThreshold),
		Count: b.CountThreshold, Consecutive: b.Consecutive, RowAt: b.ConsecutiveThreshold,
		Probes: b.ProbesInFlight, MaxProbes: b.MaxProbes, Opened: b.Opened,
		Observing: b.Observing, Spared: b.Spared, Keys: b.Keys, OpenKeys: b.OpenKeys,
	}
	if b.RetryAfter > 0 {
		d.Next = now.Add(b.RetryAfter).UnixMilli()
	}
	return d
}

// detail describes a dependency in full. It reports false when there is none of that
// name.
func (d *Dashboard) detail(name string, v Viewer) (Detail, bool) {
	pipe, ok := d.registry.Get(name)
	if !ok {
		return Detail{}, false
	}
	offers := d.offers(pipe, v)
	s := d.sampler
	s.mu.RLock()
	r := s.records[name]
	if r == nil { // between its making and the next sample
		s.mu.RUnlock()
		return Detail{}, false
	}
	det := Detail{At: s.now.UnixMilli(), Card: r.card, Kept: r.table != nil}
	for i := range r.recent.to.Policies {
		p := &r.recent.to.Policies[i]
		st := newStage(r.recent, p, s.journal.lastChange(name, p.Name), v)
		st.Offers = offers[p.Name]
		det.Policies = append(det.Policies, st)
	}
	s.mu.RUnlock()
	for _, w := range pipe.Warnings() {
		det.Warnings = append(det.Warnings, clean(w, 2*maxText))
	}
	det.Settings = d.settings(name)
	det.Answers = d.answers(v, name)
	det.Changes = d.journal.timeline(name, 60, v)
	det.Refusals = d.journal.incidents(d.journal.refusals, name, v)
	det.Failures = d.journal.incidents(d.journal.failures, name, v)
	return det, true
}
