package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Answer answers one of the ten questions that somebody has who was called because
// something is wrong.
type Answer struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Short    string `json:"short"` // in one line
	Level    Level  `json:"level"`
	Items    []Item `json:"items,omitempty"` // one for each thing it is about, the worst first
}

// Item is a part of an answer.
type Item struct {
	Dependency string `json:"dependency,omitempty"`
	Text       string `json:"text"`
	At         int64  `json:"at,omitempty"` // milliseconds since 1970
	Level      Level  `json:"level"`
}

// The questions, in the order in which they come up.
const (
	askOpen     = "open"
	askSince    = "since"
	askWhy      = "why"
	askProbe    = "probe"
	askRefused  = "refused"
	askChanged  = "changed"
	askNearest  = "nearest"
	askBudget   = "budget"
	askFallback = "fallback"
	askMay      = "may"
)

var questions = map[string]string{
	askOpen:     "What is open?",
	askSince:    "Since when?",
	askWhy:      "Why did it open?",
	askProbe:    "When is the next probe?",
	askRefused:  "Who is being refused now?",
	askChanged:  "What changed just before?",
	askNearest:  "Which limit is nearest?",
	askBudget:   "Is a retry budget gone?",
	askFallback: "Is a fallback serving?",
	askMay:      "What may I do about it?",
}

// mostItems bounds an answer about a fleet.
const mostItems = 12

// openBreaker is a breaker that does not let all calls through.
type openBreaker struct {
	dependency string
	p          *policy.PolicySnapshot
	level      Level
	change     *policy.StateChange // its last one
	began      Change              // when it opened, if that was seen
	seen       bool
}

// near is a bound and how much of it is used.
type near struct {
	dependency string
	text       string
	use        float64
}

// inquiry is what the answers are made of.
type inquiry struct {
	now     time.Time
	records []*record
	open    []openBreaker
	changes []Change
}

// answers answers the ten questions, about one dependency or, with an empty name, about
// all.
func (d *Dashboard) answers(v Viewer, dependency string) []Answer {
	s := d.sampler
	may := d.may(v, dependency)
	s.mu.RLock()
	defer s.mu.RUnlock()
	q := inquiry{now: s.now, changes: d.journal.timeline(dependency, keptChanges, Viewer{})}
	if dependency == "" {
		q.records = slices.Clone(s.order)
		slices.SortFunc(q.records, func(a, b *record) int { return worse(&a.card, &b.card) })
	} else if r := s.records[dependency]; r != nil {
		q.records = []*record{r}
	}
	q.findOpen(d.journal)
	since, why, probe := q.about()
	return []Answer{
		q.whatIsOpen(), since, why, probe,
		q.whoIsRefused(), q.whatChanged(s), q.whatIsNearest(), q.budgets(), q.fallbacks(),
		mayAnswer(may, q.open),
	}
}

// findOpen lists the breakers that do not let all calls through, the worst first.
func (q *inquiry) findOpen(j *journal) {
	for _, r := range q.records {
		for i := range r.last.Policies {
			p := &r.last.Policies[i]
			b := p.Breaker
			if b == nil || watches(p) || b.State == "closed" || b.State == "forced_closed" {
				continue
			}
			o := openBreaker{dependency: r.name, p: p, level: LevelWarn, change: j.lastChange(r.name, p.Name)}
			if b.State == "open" || b.State == "forced_open" {
				o.level = LevelBad
			}
			o.began, o.seen = j.opening(r.name, p.Name)
			q.open = append(q.open, o)
		}
	}
	slices.SortStableFunc(q.open, func(a, b openBreaker) int {
		return cmp.Compare(stateCode(b.p.Breaker.State), stateCode(a.p.Breaker.State))
	})
}

func (q *inquiry) whatIsOpen() Answer {
	a := Answer{ID: askOpen, Question: questions[askOpen]}
	for _, o := range q.open {
		text := fmt.Sprintf("%s is %s", clean(o.p.Name, maxText), breakerWords(o.p.Breaker, q.now))
		a.add(Item{Dependency: o.dependency, Text: text, At: o.p.Breaker.Since.UnixMilli(), Level: o.level})
	}
	switch {
	case len(q.open) == 0:
		a.Short = "Nothing. Every breaker lets all calls through."
		if !q.hasBreaker() {
			a.Short = "Nothing. There is no breaker."
		}
	case len(q.open) == 1:
		a.Short = fmt.Sprintf("%s is %s.", clean(q.open[0].dependency, maxText), stateWord(q.open[0].p.Breaker.State))
	default:
		a.Short = fmt.Sprintf("%d breakers: %s.", len(q.open), names(q.open))
	}
	return a
}

func (q *inquiry) hasBreaker() bool {
	return slices.ContainsFunc(q.records, func(r *record) bool { return r.card.State != "" })
}

func names(open []openBreaker) string {
	var list []string
	for i, o := range open {
		if i == 3 && len(open) > 4 {
			list = append(list, fmt.Sprintf("and %d more", len(open)-i))
			break
		}
		list = append(list, clean(o.dependency, 64))
	}
	return strings.Join(list, ", ")
}

// about answers what is asked about breakers that are open.
func (q *inquiry) about() (since, why, probe Answer) {
	since = Answer{ID: askSince, Question: questions[askSince]}
	why = Answer{ID: askWhy, Question: questions[askWhy]}
	probe = Answer{ID: askProbe, Question: questions[askProbe]}
	for _, o := range q.open {
		b := o.p.Breaker
		state := fmt.Sprintf("%s for %s", stateWord(b.State), howLong(q.now.Sub(b.Since)))
		at := b.Since.UnixMilli()
		if o.seen && o.began.At < at {
			at = o.began.At
			state += fmt.Sprintf("; not closed for %s, opened %d times since the start", howLong(q.now.Sub(time.UnixMilli(at))), b.Opened)
		}
		since.add(Item{Dependency: o.dependency, Text: state, At: at, Level: o.level})

		reason := fullWhy(b, o.change, o.began, o.seen)
		why.add(Item{Dependency: o.dependency, Text: reason, At: at, Level: o.level})

		next := nextWords(b)
		if next == "" {
			next = "none is needed: " + stateWord(b.State)
		}
		probe.add(Item{Dependency: o.dependency, Text: next, Level: o.level})
	}
	for _, a := range []*Answer{&since, &why, &probe} {
		switch len(a.Items) {
		case 0:
			a.Short = "Nothing is open."
		default:
			a.Short = sentence(a.Items[0].Text)
			if len(q.open) > 1 {
				a.Short = clean(q.open[0].dependency, 64) + ": " + a.Short
			}
		}
	}
	return since, why, probe
}

func (q *inquiry) whoIsRefused() Answer {
	a := Answer{ID: askRefused, Question: questions[askRefused]}
	var all float64
	for _, r := range q.records {
		for _, ref := range r.card.Refused {
			all += ref.PerSecond
			text := fmt.Sprintf("%s refuses %s: %s", ref.Policy, perSecond(ref.PerSecond), reasonWord(reasonOf(ref.Reason)))
			a.add(Item{Dependency: r.name, Text: text, Level: LevelWarn})
		}
	}
	a.Short = "Nobody."
	if len(a.Items) > 0 {
		a.Short = fmt.Sprintf("%s in all; most by %s", perSecond(all), a.Items[0].Text)
		if len(q.records) > 1 {
			a.Short = fmt.Sprintf("%s in all; most to %s: %s", perSecond(all), clean(a.Items[0].Dependency, 64), a.Items[0].Text)
		}
		a.Short = sentence(a.Short)
	}
	return a
}

func reasonOf(name string) policy.Reason {
	for r := range policy.NumReasons {
		if r.String() == name {
			return r
		}
	}
	return policy.ReasonUnknown
}

// before is how long before an opening changes count as just before.
const before = 2 * time.Minute

// whatChanged lists what happened before the oldest opening that goes on: changes of
// state, what was done by hand, and figures that moved. It requires s.mu.
func (q *inquiry) whatChanged(s *sampler) Answer {
	a := Answer{ID: askChanged, Question: questions[askChanged]}
	if len(q.open) == 0 {
		for _, c := range q.changes {
			if len(a.Items) == 5 {
				break
			}
			a.add(Item{Dependency: c.Dependency, Text: changeLine(&c), At: c.At})
		}
		a.Short = "Nothing that was seen."
		if len(a.Items) > 0 {
			a.Short = fmt.Sprintf("Nothing is open. The last change was %s ago.", howLong(q.now.Sub(time.UnixMilli(a.Items[0].At))))
		}
		return a
	}
	for _, o := range q.open {
		at := o.p.Breaker.Since.UnixMilli()
		if o.seen {
			at = o.began.At
		}
		if r := s.records[o.dependency]; r != nil && r.table != nil {
			for _, text := range s.moved(r, at) {
				a.add(Item{Dependency: o.dependency, Text: text, At: at, Level: LevelWarn})
			}
		}
		for _, c := range q.changes {
			if c.At < at && c.At >= at-before.Milliseconds() && (c.Dependency == clean(o.dependency, maxText) || c.From == "") {
				a.add(Item{Dependency: c.Dependency, Text: changeLine(&c), At: c.At})
			}
		}
	}
	a.Short = "Nothing that was seen: neither a figure nor a setting."
	if len(a.Items) > 0 {
		a.Short = sentence(a.Items[0].Text)
	}
	return a
}

func changeLine(c *Change) string {
	s := c.Policy + ": "
	if c.From != c.To {
		s += fmt.Sprintf("%s → %s, ", stateWord(c.From), stateWord(c.To))
	}
	s += c.Words
	if c.Note != "" {
		s += " (" + c.Note + ")"
	}
	return s
}

// moved says which figures moved in the seconds before a moment, against the half
// minute before those. It requires s.mu.
func (s *sampler) moved(r *record, at int64) (texts []string) {
	spots := s.time.spots(r.table.since)
	mean := func(col int, from, to int64) (m float64, ok bool) {
		n := 0
		for _, sp := range spots {
			if sp.at < from || sp.at >= to {
				continue
			}
			if v := float64(r.table.row(sp.row)[col]); !math.IsNaN(v) {
				m += v
				n++
			}
		}
		return m / math.Max(float64(n), 1), n > 0
	}
	const near, far = 4000, 34000
	for _, fig := range []struct {
		col  int
		name string
		say  func(float64) string
	}{
		{colP99, "p99", millis},
		{colP50, "p50", millis},
		{colKinds + int(policy.Failure), "failures", perSecond},
		{colKinds + int(policy.Timeout), "timeouts", perSecond},
		{colKinds + int(policy.Busy), "“overloaded” answers", perSecond},
		{colCalls, "calls", perSecond},
		{colRetries, "retries", perSecond},
		{colFlight, "in flight", number},
	} {
		was, ok1 := mean(fig.col, at-far, at-near)
		is, ok2 := mean(fig.col, at-near, at+1500)
		if !ok1 || !ok2 {
			continue
		}
		switch {
		case is >= 2*was && is-was >= 1:
			texts = append(texts, fmt.Sprintf("%s rose from %s to %s in the seconds before", fig.name, fig.say(was), fig.say(is)))
		case was >= 2*is && was-is >= 1 && fig.col == colCalls:
			texts = append(texts, fmt.Sprintf("%s fell from %s to %s in the seconds before", fig.name, fig.say(was), fig.say(is)))
		}
	}
	return texts
}

// bounds lists what is bounded in a pipeline.
func bounds(r *record) (list []near) {
	add := func(p *policy.PolicySnapshot, n, of float64, what string) {
		if of > 0 && !math.IsInf(of, 0) {
			list = append(list, near{r.name, fmt.Sprintf("%s: %s of %s %s (%s)", clean(p.Name, maxText), number(n), number(of), what, percent(n/of)), n / of})
		}
	}
	share := func(p *policy.PolicySnapshot, n, of float64, what string) {
		if of > 0 {
			list = append(list, near{r.name, fmt.Sprintf("%s: %s %s, the limit is %s", clean(p.Name, maxText), percent(n), what, percent(of)), n / of})
		}
	}
	for i := range r.last.Policies {
		p := &r.last.Policies[i]
		if p.Shadow {
			continue
		}
		switch {
		case p.Bulkhead != nil:
			add(p, float64(p.Bulkhead.InFlight), float64(p.Bulkhead.Limit), "in use")
			add(p, float64(p.Bulkhead.Waiting), float64(p.Bulkhead.MaxWaiters), "waiting")
		case p.Limiter != nil && p.Limiter.Load == nil:
			l := p.Limiter
			add(p, math.Max(l.Burst-l.Tokens, 0), l.Burst, "tokens taken")
			add(p, float64(l.Waiting), float64(l.MaxWaiters), "waiting")
		case p.Breaker != nil && p.Breaker.State == "closed":
			share(p, p.Breaker.FailureRatio, p.Breaker.FailureThreshold, "failed")
			share(p, p.Breaker.SlowRatio, p.Breaker.SlowThreshold, "slow")
			add(p, float64(p.Breaker.Consecutive), float64(p.Breaker.ConsecutiveThreshold), "failures in a row")
		}
	}
	return list
}

func (q *inquiry) whatIsNearest() Answer {
	a := Answer{ID: askNearest, Question: questions[askNearest]}
	var all []near
	for _, r := range q.records {
		all = append(all, bounds(r)...)
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(b.use, a.use) })
	for i, n := range all {
		if i == 6 {
			break
		}
		it := Item{Dependency: n.dependency, Text: n.text}
		switch {
		case n.use >= 1:
			it.Level = LevelWarn
		case n.use >= nearShare:
			it.Level = LevelNote
		}
		a.add(it)
	}
	a.Short = "There is no limit."
	if len(all) > 0 {
		a.Short = sentence(all[0].text)
		if len(q.records) > 1 {
			a.Short = clean(all[0].dependency, 64) + ", " + a.Short
		}
	}
	return a
}

func (q *inquiry) budgets() Answer {
	a := Answer{ID: askBudget, Question: questions[askBudget]}
	gone := 0
	var least *record
	for _, r := range q.records {
		ret := retryOf(&r.last)
		if ret == nil || !ret.HasBudget {
			continue
		}
		if least == nil || ret.BudgetRemaining < retryOf(&least.last).BudgetRemaining {
			least = r
		}
		it := Item{Dependency: r.name, Text: fmt.Sprintf("%s retries left: %d retries for %d first attempts in its window, %s are allowed",
			number(math.Max(math.Floor(ret.BudgetRemaining), 0)), ret.BudgetRetries, ret.BudgetFirsts, percent(ret.BudgetRatio))}
		if ret.BudgetRemaining < 1 {
			gone++
			it.Level = LevelWarn
			it.Text = "gone: " + it.Text
		}
		if stopped := ret.Stopped[policy.StopBudget]; stopped > 0 {
			it.Text += fmt.Sprintf("; %d calls were not tried again for it since the start", stopped)
		}
		a.add(it)
	}
	slices.SortStableFunc(a.Items, func(x, y Item) int { return cmp.Compare(y.Level, x.Level) })
	switch {
	case least == nil:
		a.Short = "There is none."
	case gone > 0:
		a.Short = fmt.Sprintf("Yes: %s.", clean(a.Items[0].Dependency, 64))
		if gone > 1 {
			a.Short = fmt.Sprintf("Yes: %d of them.", gone)
		}
	default:
		a.Short = fmt.Sprintf("No. The smallest has %s retries left.", number(math.Floor(retryOf(&least.last).BudgetRemaining)))
	}
	return a
}

func (q *inquiry) fallbacks() Answer {
	a := Answer{ID: askFallback, Question: questions[askFallback]}
	has, serving := false, 0
	for _, r := range q.records {
		has = has || r.card.HasBack
		for i := range r.last.Policies {
			p := &r.last.Policies[i]
			if p.Fallback == nil {
				continue
			}
			age := ageWords(p.Fallback)
			if age == "" {
				age = "what it serves is made up on the spot and has no age"
			}
			it := Item{Dependency: r.name, Text: fmt.Sprintf("%s does not serve now (%d answers since the start); %s", clean(p.Name, maxText), p.Fallback.Served, age)}
			if old := r.recent.before(p); old != nil && old.Fallback != nil && p.Fallback.Served > old.Fallback.Served {
				n := less(p.Fallback.Served, old.Fallback.Served) / r.recent.seconds
				it.Text = fmt.Sprintf("%s answers %s, %s of the calls; %s", clean(p.Name, maxText), perSecond(n), percent(r.card.Fallback), age)
				it.Level = LevelWarn
				serving++
			}
			a.add(it)
		}
	}
	slices.SortStableFunc(a.Items, func(x, y Item) int { return cmp.Compare(y.Level, x.Level) })
	switch {
	case !has:
		a.Short = "There is none."
	case serving == 0:
		a.Short = "No."
	case len(q.records) > 1:
		a.Short = sentence("Yes, for " + clean(a.Items[0].Dependency, 64) + ": " + a.Items[0].Text)
	default:
		a.Short = sentence("Yes: " + a.Items[0].Text)
	}
	return a
}

// mayAnswer says what the viewer may do.
func mayAnswer(may []Item, open []openBreaker) Answer {
	a := Answer{ID: askMay, Question: questions[askMay]}
	for _, o := range open {
		switch o.p.Breaker.State {
		case "open", "half_open":
			a.add(Item{Dependency: o.dependency, Text: "wait: " + nextWords(o.p.Breaker) + ", and it closes by itself when the dependency answers again"})
		case "recovering":
			a.add(Item{Dependency: o.dependency, Text: "wait: the load is returning"})
		}
	}
	for _, it := range may {
		a.add(it)
	}
	a.Short = "Look: nothing can be changed here."
	if len(may) > 0 && may[0].Level == LevelNote {
		a.Short = sentence(may[0].Text)
	}
	return a
}

func (a *Answer) add(it Item) {
	if len(a.Items) >= mostItems {
		return
	}
	it.Dependency = clean(it.Dependency, maxText)
	a.Items = append(a.Items, it)
	a.Level = max(a.Level, it.Level)
}

// sentence makes a sentence of a text.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.TrimSuffix(s, ".")
	r := []rune(s)
	if len(r) > 1 && r[0] >= 'a' && r[0] <= 'z' && strings.HasPrefix(s, "p") && r[1] >= '0' && r[1] <= '9' {
		return s + "." // p99 is a name
	}
	return strings.ToUpper(string(r[0])) + string(r[1:]) + "."
}
