package dashboard

import (
	"math"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Level says how much a dependency needs attention.
type Level int

// The levels, the least first.
const (
	LevelFine Level = iota // nothing is the matter
	LevelNote              // worth knowing: a limit is near, something was set by hand
	LevelWarn              // calls are refused or answered by a fallback, or a breaker recovers
	LevelBad               // a breaker is open, or calls fail beyond its threshold
)

// Card is one dependency at a glance. Rates and latencies are those of the last three
// to six seconds. Times are in milliseconds since 1970, 0 when there is none.
type Card struct {
	Name  string `json:"name"`
	Group string `json:"group,omitempty"`
	Level Level  `json:"level"`

	// State is that of the breaker that is worst off; empty without one. Policy is its
	// name, Why what led to the state, in words, Since when it began, and Next when the
	// next probe is, or a command ends.
	State  string `json:"state,omitempty"`
	Policy string `json:"policy,omitempty"`
	Why    string `json:"why,omitempty"`
	Since  int64  `json:"since,omitempty"`
	Next   int64  `json:"next,omitempty"`

	Calls      float64 `json:"calls"` // per second
	Errors     float64 `json:"errors"`
	ErrorLimit float64 `json:"errorLimit,omitempty"`
	Slow       float64 `json:"slow"`
	SlowLimit  float64 `json:"slowLimit,omitempty"`
	P50        float64 `json:"p50"` // milliseconds
	P95        float64 `json:"p95"`
	P99        float64 `json:"p99"`

	Refused  []Refused `json:"refused,omitempty"` // most first
	Fallback float64   `json:"fallback"`          // share of calls that a fallback answered
	HasBack  bool      `json:"hasFallback,omitempty"`

	InFlight   int `json:"inFlight"`
	Limit      int `json:"limit,omitempty"`
	Waiting    int `json:"waiting"`
	MaxWaiting int `json:"maxWaiting,omitempty"`

	Tokens    float64 `json:"tokens"`
	Burst     float64 `json:"burst,omitempty"`
	Budget    float64 `json:"budget"` // retries left
	HasBudget bool    `json:"hasBudget,omitempty"`
	Retries   float64 `json:"retries"` // per second

	Keys     int `json:"keys,omitempty"`
	OpenKeys int `json:"openKeys,omitempty"`

	Shadow []string `json:"shadow,omitempty"` // policies that only watch
	ByHand []string `json:"byHand,omitempty"` // policies with a value or a state set by hand
}

// Refused is a rate of refusals.
type Refused struct {
	Policy    string  `json:"policy"`
	Reason    string  `json:"reason"`
	PerSecond float64 `json:"perSecond"`
}

// stateCodes order the states of a breaker from the best to the worst.
var stateCodes = []string{"closed", "forced_closed", "recovering", "throttling", "half_open", "open", "forced_open"}

func stateCode(state string) float32 { return float32(slices.Index(stateCodes, state)) }

// span is what happened between two snapshots of a pipeline.
type span struct {
	from, to *policy.Snapshot
	seconds  float64
}

func newSpan(from, to *policy.Snapshot) span {
	s := span{from: from, to: to, seconds: to.Time.Sub(from.Time).Seconds()}
	if s.seconds <= 0 {
		s.seconds = sampleEvery.Seconds()
	}
	return s
}

// less is a difference of counters that fall when a policy changes its mode.
func less(a, b uint64) float64 {
	if a < b {
		return 0
	}
	return float64(a - b)
}

func (s span) calls() float64 {
	var n float64
	for k := range s.to.Calls {
		n += less(s.to.Calls[k], s.from.Calls[k])
	}
	return n / s.seconds
}

func (s span) attempts(k policy.Kind) float64 {
	return less(s.to.Attempts[k], s.from.Attempts[k]) / s.seconds
}

func (s span) retries() float64 { return less(s.to.Retries, s.from.Retries) / s.seconds }

// before returns the earlier state of a policy.
func (s span) before(p *policy.PolicySnapshot) *policy.PolicySnapshot {
	for i := range s.from.Policies {
		if q := &s.from.Policies[i]; q.Name == p.Name && q.Kind == p.Kind {
			return q
		}
	}
	return nil
}

// refused returns the refusals of a policy by reason, per second. What a policy would
// have refused that only watches is not among them, nor what one did before it changed.
func (s span) refused(p *policy.PolicySnapshot, r policy.Reason) float64 {
	old := s.before(p)
	if old == nil || old.Shadow != p.Shadow {
		return 0
	}
	return less(p.Rejected[r], old.Rejected[r]) / s.seconds
}

func (s span) served() (perSecond float64, has bool) {
	for i := range s.to.Policies {
		p := &s.to.Policies[i]
		if p.Fallback == nil {
			continue
		}
		has = true
		if old := s.before(p); old != nil && old.Fallback != nil {
			perSecond += less(p.Fallback.Served, old.Fallback.Served) / s.seconds
		}
	}
	return perSecond, has
}

// quantiles returns the p50, p95 and p99 in milliseconds, in one pass.
func (s span) quantiles() (q [3]float64) {
	ranks := [3]float64{0.50, 0.95, 0.99}
	counts, old := s.to.Latency.Counts, s.from.Latency.Counts
	var n float64
	for i := range counts {
		n += since(counts, old, i)
	}
	if n == 0 {
		return q
	}
	var seen float64
	next := 0
	for i := range counts {
		seen += since(counts, old, i)
		for next < len(q) && seen >= math.Max(math.Ceil(ranks[next]*n), 1) {
			q[next] = float64(s.to.Latency.Upper(i)) / float64(time.Millisecond)
			next++
		}
		if next == len(q) {
			break
		}
	}
	return q
}

func since(counts, old []uint64, i int) float64 {
	if i < len(old) {
		return less(counts[i], old[i])
	}
	return float64(counts[i])
}

// heat adds the attempts by duration to the bands of a row.
func (s span) heat(bands []float32) {
	counts, old := s.to.Latency.Counts, s.from.Latency.Counts
	band := 0
	for i := range counts {
		for band < heatBands-1 && s.to.Latency.Upper(i) > heatUpper(band) {
			band++
		}
		if n := since(counts, old, i); n > 0 {
			bands[band] += float32(n / s.seconds)
		}
	}
}

// shares returns the share of failed attempts among those that ran.
func (s span) errorShare() float64 {
	var ran, bad float64
	for k := policy.NotRun + 1; k < policy.NumKinds; k++ {
		if k == policy.Canceled {
			continue
		}
		n := s.attempts(k)
		ran += n
		if k.IsFailure() {
			bad += n
		}
	}
	if ran == 0 {
		return 0
	}
	return bad / ran
}

// worstBreaker returns the breaker that is worst off, one that decides before one that
// only watches, and nil when there is none.
func worstBreaker(s *policy.Snapshot) (worst *policy.PolicySnapshot) {
	rank := func(p *policy.PolicySnapshot) float32 {
		r := stateCode(p.Breaker.State)
		if watches(p) {
			r -= float32(len(stateCodes))
		}
		return r
	}
	for i := range s.Policies {
		if p := &s.Policies[i]; p.Breaker != nil && (worst == nil || rank(p) > rank(worst)) {
			worst = p
		}
	}
	return worst
}

func watches(p *policy.PolicySnapshot) bool {
	return p.Shadow || p.Breaker != nil && p.Breaker.Observing
}

// use is how much of a bound is used.
func use(n, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return n / of
}

// fullestBulkhead returns the bulkhead that is nearest to its limit.
func fullestBulkhead(s *policy.Snapshot) (fullest *policy.BulkheadSnapshot) {
	full := func(b *policy.BulkheadSnapshot) float64 {
		return use(float64(b.InFlight), float64(b.Limit)) + use(float64(b.Waiting), float64(b.MaxWaiters))
	}
	for i := range s.Policies {
		if b := s.Policies[i].Bulkhead; b != nil && (fullest == nil || full(b) > full(fullest)) {
			fullest = b
		}
	}
	return fullest
}

// scarcestLimiter returns the limiter that has the least of its burst left.
func scarcestLimiter(s *policy.Snapshot) (scarcest *policy.LimiterSnapshot) {
	for i := range s.Policies {
		l := s.Policies[i].Limiter
		if l == nil || l.Burst <= 0 {
			continue
		}
		if scarcest == nil || l.Tokens/l.Burst < scarcest.Tokens/scarcest.Burst {
			scarcest = l
		}
	}
	return scarcest
}

func retryOf(s *policy.Snapshot) *policy.RetrySnapshot {
	for i := range s.Policies {
		if r := s.Policies[i].Retry; r != nil {
			return r
		}
	}
	return nil
}

// newCard makes a card of what happened between two snapshots.
func newCard(s span, group string, j *journal) Card {
	to := s.to
	c := Card{Name: clean(to.Dependency, maxText), Group: clean(group, maxText), Calls: round(s.calls()), Errors: round(s.errorShare()), Retries: round(s.retries())}
	q := s.quantiles()
	c.P50, c.P95, c.P99 = round(q[0]), round(q[1]), round(q[2])
	if p := worstBreaker(to); p != nil {
		b := p.Breaker
		c.State, c.Policy, c.Since = b.State, clean(p.Name, maxText), b.Since.UnixMilli()
		began, seen := j.opening(to.Dependency, p.Name)
		c.Why = fullWhy(b, j.lastChange(to.Dependency, p.Name), began, seen && b.State != "closed")
		if b.RetryAfter > 0 {
			c.Next = to.Time.Add(b.RetryAfter).Round(50 * time.Millisecond).UnixMilli()
		}
		c.ErrorLimit, c.SlowLimit = finite(b.FailureThreshold), finite(b.SlowThreshold)
		if b.State == "closed" || b.State == "recovering" || b.State == "forced_closed" {
			c.Slow = round(b.SlowRatio)
		}
	}
	for i := range to.Policies {
		p := &to.Policies[i]
		if p.Breaker != nil {
			c.Keys += p.Breaker.Keys
			c.OpenKeys += p.Breaker.OpenKeys
			if p.Breaker.State == "forced_open" || p.Breaker.State == "forced_closed" || p.Breaker.Observing {
				c.ByHand = append(c.ByHand, clean(p.Name, maxText))
			}
		}
		if p.Limiter != nil && p.Limiter.Keyed != nil {
			c.Keys += p.Limiter.Keyed.Keys
		}
		if watches(p) {
			c.Shadow = append(c.Shadow, clean(p.Name, maxText))
		}
		if p.Shadow {
			continue
		}
		for r := range policy.NumReasons {
			if n := s.refused(p, r); n > 0 {
				c.Refused = append(c.Refused, Refused{clean(p.Name, maxText), r.String(), round(n)})
			}
		}
	}
	slices.SortStableFunc(c.Refused, func(a, b Refused) int {
		switch {
		case a.PerSecond > b.PerSecond:
			return -1
		case a.PerSecond < b.PerSecond:
			return 1
		}
		return 0
	})
	served, has := s.served()
	c.HasBack = has
	if all := s.calls(); all > 0 {
		c.Fallback = round(math.Min(served/all, 1))
	}
	if b := fullestBulkhead(to); b != nil {
		c.InFlight, c.Limit, c.Waiting, c.MaxWaiting = b.InFlight, b.Limit, b.Waiting, b.MaxWaiters
	}
	if l := scarcestLimiter(to); l != nil {
		c.Tokens, c.Burst = round(finite(l.Tokens)), round(finite(l.Burst))
	}
	if r := retryOf(to); r != nil && r.HasBudget {
		c.Budget, c.HasBudget = round(finite(r.BudgetRemaining)), true
	}
	c.Level = c.level(to)
	return c
}

// level says how much attention a card needs.
func (c *Card) level(s *policy.Snapshot) Level {
	deciding := false
	if p := worstBreaker(s); p != nil {
		deciding = !watches(p)
	}
	refused := 0.0
	for _, r := range c.Refused {
		refused += r.PerSecond
	}
	switch {
	case deciding && (c.State == "open" || c.State == "forced_open"):
		return LevelBad
	case c.ErrorLimit > 0 && c.Calls > 0 && c.Errors >= c.ErrorLimit:
		return LevelBad
	case deciding && (c.State == "half_open" || c.State == "recovering" || c.State == "throttling"),
		refused > 0,
		c.Fallback > 0,
		c.ErrorLimit > 0 && c.Errors >= c.ErrorLimit/2,
		c.SlowLimit > 0 && c.Slow >= c.SlowLimit/2,
		c.ErrorLimit == 0 && c.Errors >= 0.1:
		return LevelWarn
	case c.Limit > 0 && float64(c.InFlight) >= nearShare*float64(c.Limit),
		c.MaxWaiting > 0 && float64(c.Waiting) >= nearShare*float64(c.MaxWaiting),
		c.budgetGone(),
		len(c.ByHand) > 0:
		return LevelNote
	}
	return LevelFine
}

// nearShare is the share of a bound from which on it is called near.
const nearShare = 0.8

func (c *Card) budgetGone() bool { return c.HasBudget && c.Budget < 1 }

// worse orders cards: the worst first.
func worse(a, b *Card) int {
	rank := func(c *Card) float64 {
		r := float64(c.Level) * 1000
		r += float64(stateCode(c.State)) * 10
		r += c.Errors*5 + c.Fallback
		for _, x := range c.Refused {
			r += math.Min(x.PerSecond, 1)
		}
		return r
	}
	switch ra, rb := rank(a), rank(b); {
	case ra > rb:
		return -1
	case ra < rb:
		return 1
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// round keeps three digits or so, so that what hardly changes is not sent again.
func round(f float64) float64 {
	f = finite(f)
	switch a := math.Abs(f); {
	case a >= 1000:
		return math.Round(f)
	case a >= 10:
		return math.Round(f*10) / 10
	default:
		return math.Round(f*1000) / 1000
	}
}
