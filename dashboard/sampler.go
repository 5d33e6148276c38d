package dashboard

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// basesEvery is how often the snapshot that live figures are seen from moves on: they
// are those of the last three to six seconds.
const basesEvery = 3

// record is what is kept of one pipeline.
type record struct {
	name   string
	group  string
	table  *table   // nil when there was no room
	kept   []string // policies that have columns
	last   policy.Snapshot
	bases  [2]policy.Snapshot // the older one first
	card   Card
	line   []byte // the card as JSON
	moved  bool   // it changed with the last sample
	cells  []float32
	recent span // what live figures are made of
}

// sampler reads the registry and keeps the history. There is one, however many look.
type sampler struct {
	registry *policy.Registry
	journal  *journal
	group    func(string) string
	room     int // bytes that are left for tables
	byHand   func(dependency string) []string

	mu      sync.RWMutex
	time    timeline
	now     time.Time
	order   []*record // by name
	records map[string]*record
	frame   uint64 // number of the last sample
	grown   uint64 // number of the last one that found a new pipeline
	wake    chan struct{}
}

func newSampler(reg *policy.Registry, j *journal, cfg Config) *sampler {
	return &sampler{
		registry: reg, journal: j, group: cfg.Group, room: cfg.MaxHistoryBytes,
		byHand:  func(string) []string { return nil },
		records: map[string]*record{}, wake: make(chan struct{}),
	}
}

// sample takes one sample of every pipeline.
func (s *sampler) sample(now time.Time) {
	snaps := s.registry.Snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.time.taken
	s.time.mark(now)
	s.now = now
	for i := range snaps {
		s.take(&snaps[i], n)
	}
	s.frame++
	close(s.wake)
	s.wake = make(chan struct{})
}

// take adds the state of one pipeline. It requires that s.mu is held.
func (s *sampler) take(snap *policy.Snapshot, n int) {
	slim(snap)
	r := s.records[snap.Dependency]
	if r == nil {
		r = s.open(snap, n)
	}
	second := newSpan(&r.last, snap)
	if r.table != nil {
		r.fill(second, snap)
	}
	live := newSpan(&r.bases[0], snap)
	card := newCard(live, r.group, s.journal)
	if hand := s.byHand(snap.Dependency); len(hand) > 0 {
		card.ByHand = append(card.ByHand, hand...)
		slices.Sort(card.ByHand)
		card.ByHand = slices.Compact(card.ByHand)
		card.Level = max(card.Level, LevelNote)
	}
	r.card = card
	line, err := json.Marshal(card)
	if err != nil { // a number that JSON cannot say; there is none
		line = r.line
	}
	r.moved = !bytes.Equal(line, r.line)
	r.line = line
	if r.table != nil {
		r.cells[colLevel] = float32(card.Level)
		r.table.put(n, r.cells)
	}
	r.last = *snap
	if n%basesEvery == 0 {
		r.bases[0], r.bases[1] = r.bases[1], *snap
	}
	r.recent = newSpan(&r.bases[0], &r.last)
}

// slim drops what no figure is made of.
func slim(s *policy.Snapshot) {
	for i := range s.Policies {
		if b := s.Policies[i].Bulkhead; b != nil {
			b.Wait, b.Run = policy.Latency{}, policy.Latency{}
		}
	}
}

func (s *sampler) open(snap *policy.Snapshot, n int) *record {
	r := &record{name: snap.Dependency, group: s.group(snap.Dependency), last: *snap, bases: [2]policy.Snapshot{*snap, *snap}}
	for i := range snap.Policies {
		if len(r.kept) < keptPolicies {
			r.kept = append(r.kept, snap.Policies[i].Name)
		}
	}
	if size := tableBytes(len(r.kept)); size <= s.room {
		s.room -= size
		r.table = newTable(len(r.kept), n)
		r.cells = make([]float32, r.table.stride)
	}
	s.records[r.name] = r
	s.grown = s.frame + 1
	at, _ := slices.BinarySearchFunc(s.order, r.name, func(o *record, name string) int {
		switch {
		case o.name < name:
			return -1
		case o.name > name:
			return 1
		}
		return 0
	})
	s.order = slices.Insert(s.order, at, r)
	return r
}

// fill writes the sample of one second into the cells.
func (r *record) fill(s span, snap *policy.Snapshot) {
	c := r.cells
	clear(c)
	c[colCalls] = float32(s.calls())
	for k := range policy.NumKinds {
		c[colKinds+int(k)] = float32(s.attempts(k))
	}
	c[colRetries] = float32(s.retries())
	served, _ := s.served()
	c[colServed] = float32(served)
	for i, q := range s.quantiles() {
		c[colP50+i] = float32(q)
	}
	s.heat(c[colHeat : colHeat+heatBands])
	nothing := float32(math.NaN())
	c[colState], c[colTokens], c[colBurst], c[colBudget] = nothing, nothing, nothing, nothing
	c[colFailure], c[colSlow], c[colFlight], c[colLimit], c[colWaiting] = nothing, nothing, nothing, nothing, nothing
	if p := worstBreaker(snap); p != nil {
		c[colState] = stateCode(p.Breaker.State)
		c[colFailure], c[colSlow] = float32(p.Breaker.FailureRatio), float32(p.Breaker.SlowRatio)
	}
	if b := fullestBulkhead(snap); b != nil {
		c[colFlight], c[colLimit], c[colWaiting] = float32(b.InFlight), float32(b.Limit), float32(b.Waiting)
	}
	if l := scarcestLimiter(snap); l != nil {
		c[colTokens], c[colBurst] = float32(finite(l.Tokens)), float32(finite(l.Burst))
	}
	if b := retryOf(snap); b != nil && b.HasBudget {
		c[colBudget] = float32(finite(b.BudgetRemaining))
	}
	for i := range snap.Policies {
		p := &snap.Policies[i]
		var refused float64
		for reason := range policy.NumReasons {
			n := s.refused(p, reason)
			refused += n
			if !p.Shadow {
				c[colReasons+int(reason)] += float32(n)
			}
		}
		if at := slices.Index(r.kept, p.Name); at >= 0 {
			own := c[ownColumns+at*policyColumns:]
			own[0] = float32(refused)
			own[1], own[2] = figures(p)
		}
	}
}

// figures are the two numbers of a policy that its history keeps.
func figures(p *policy.PolicySnapshot) (a, b float32) {
	switch {
	case p.Breaker != nil:
		return stateCode(p.Breaker.State), float32(p.Breaker.Calls)
	case p.Bulkhead != nil:
		return float32(p.Bulkhead.InFlight), float32(p.Bulkhead.Waiting)
	case p.Limiter != nil:
		return float32(finite(p.Limiter.Tokens)), float32(finite(p.Limiter.Rate))
	case p.Retry != nil:
		return float32(finite(p.Retry.BudgetRemaining)), 0
	}
	return 0, 0
}

// cards returns the cards as they are now.
func (s *sampler) cards() (list []Card, at time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list = make([]Card, 0, len(s.order))
	for _, r := range s.order {
		list = append(list, r.card)
	}
	return list, s.now
}

// cardsAt returns the cards as they were, as far as the history says, and the time that
// they are from.
func (s *sampler) cardsAt(ms int64) (list []Card, at int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list = make([]Card, 0, len(s.order))
	for _, r := range s.order {
		if r.table == nil {
			continue
		}
		spots := s.time.spots(r.table.since)
		i, exact := slices.BinarySearchFunc(spots, ms, func(sp spot, ms int64) int {
			switch {
			case sp.at < ms:
				return -1
			case sp.at > ms:
				return 1
			}
			return 0
		})
		if !exact {
			i--
		}
		if i < 0 {
			continue // it was not there yet
		}
		at = max(at, spots[i].at)
		list = append(list, s.pastCard(r, spots[i]))
	}
	return list, at
}

// pastCard makes a card of a row of the history.
func (s *sampler) pastCard(r *record, sp spot) Card {
	c := r.table.row(sp.row)
	f := func(col int) float64 {
		if v := float64(c[col]); !math.IsNaN(v) {
			return round(v)
		}
		return 0
	}
	card := Card{
		Name: r.card.Name, Group: r.card.Group, Level: Level(f(colLevel)),
		Calls: f(colCalls), Slow: f(colSlow), ErrorLimit: r.card.ErrorLimit, SlowLimit: r.card.SlowLimit,
		P50: f(colP50), P95: f(colP95), P99: f(colP99), Retries: f(colRetries),
		InFlight: int(f(colFlight)), Limit: int(f(colLimit)), Waiting: int(f(colWaiting)), MaxWaiting: r.card.MaxWaiting,
		Tokens: f(colTokens), Burst: f(colBurst), Budget: f(colBudget), HasBudget: r.card.HasBudget, HasBack: r.card.HasBack,
	}
	var ran, bad float64
	for k := policy.NotRun + 1; k < policy.NumKinds; k++ {
		n := float64(c[colKinds+int(k)])
		if k != policy.Canceled {
			ran += n
		}
		if k.IsFailure() {
			bad += n
		}
	}
	card.Errors = round(use(bad, ran))
	card.Fallback = round(math.Min(use(f(colServed), f(colCalls)), 1))
	for reason := range policy.NumReasons {
		if n := f(colReasons + int(reason)); n > 0 {
			card.Refused = append(card.Refused, Refused{Reason: reason.String(), PerSecond: n})
		}
	}
	if code := c[colState]; code >= 0 && int(code) < len(stateCodes) {
		card.State, card.Policy = stateCodes[int(code)], r.card.Policy
		if card.State == "closed" {
			return card
		}
		for _, ch := range s.journal.timeline(r.name, keptChanges, Viewer{}) {
			if ch.At <= sp.at && ch.To == card.State && ch.From != ch.To {
				card.Why, card.Since, card.Policy = ch.Words, ch.At, ch.Policy
				break
			}
		}
	}
	return card
}

// History is the table of one pipeline.
type History struct {
	Dependency string       `json:"dependency"`
	Columns    []string     `json:"columns"`
	Heat       []float64    `json:"heat"`  // upper edges of the bands, in milliseconds
	Times      []int64      `json:"times"` // milliseconds since 1970, oldest first
	Rows       [][]*float64 `json:"rows"`  // null where nothing is known
}

// columnNames lists the columns in order.
func (r *record) columnNames() []string {
	names := make([]string, 0, r.table.stride)
	names = append(names, "calls")
	for k := range policy.NumKinds {
		names = append(names, "attempts."+k.String())
	}
	names = append(names, "retries")
	for reason := range policy.NumReasons {
		names = append(names, "refused."+reason.String())
	}
	names = append(names, "served", "p50", "p95", "p99")
	for i := range heatBands {
		names = append(names, "heat."+howLong(heatUpper(i)))
	}
	names = append(names, "level", "state", "failureRatio", "slowRatio", "inFlight", "limit", "waiting", "tokens", "burst", "budget")
	for _, p := range r.kept {
		p = clean(p, maxText)
		names = append(names, "policy."+p+".refused", "policy."+p+".1", "policy."+p+".2")
	}
	return names
}

// history returns the table of a pipeline. It reports false when there is none.
func (s *sampler) history(name string) (History, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.records[name]
	if r == nil || r.table == nil {
		return History{}, false
	}
	h := History{Dependency: clean(name, maxText), Columns: r.columnNames()}
	for i := range heatBands {
		h.Heat = append(h.Heat, float64(heatUpper(i).Milliseconds()))
	}
	for _, sp := range s.time.spots(r.table.since) {
		cells := r.table.row(sp.row)
		row := make([]*float64, len(cells))
		for i, v := range cells {
			if v == v { //nolint:gocritic // not NaN
				f := round(float64(v))
				row[i] = &f
			}
		}
		h.Times = append(h.Times, sp.at)
		h.Rows = append(h.Rows, row)
	}
	return h, true
}

// sparks returns what the spark lines of the overview show: calls per second, and of
// these those that failed or were refused, one value for each second.
func (s *sampler) sparks() map[string][2][]float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make(map[string][2][]float64, len(s.order))
	for _, r := range s.order {
		if r.table == nil {
			continue
		}
		var good, bad []float64
		for n := max(s.time.taken-fineRows, r.table.since); n < s.time.taken; n++ {
			g, b := r.spark(n % fineRows)
			good, bad = append(good, g), append(bad, b)
		}
		all[r.card.Name] = [2][]float64{good, bad}
	}
	return all
}

// spark returns the calls and the bad ones among them, of one row.
func (r *record) spark(row int) (calls, bad float64) {
	c := r.table.row(row)
	for k := range policy.NumKinds {
		if k.IsFailure() || k == policy.NotRun {
			bad += float64(c[colKinds+int(k)])
		}
	}
	calls = math.Max(float64(c[colCalls]), bad)
	return round(calls), round(bad)
}
