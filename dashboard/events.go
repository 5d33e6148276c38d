package dashboard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// How much is kept of what happened.
const (
	keptChanges  = 1000
	keptIncident = 8 // refusals, and as many failures, of each pipeline
	eachReason   = 250 * time.Millisecond
)

// Change is an entry of the timeline: a policy changed its state, or somebody changed
// something by hand.
type Change struct {
	ID         uint64 `json:"id"`
	At         int64  `json:"at"` // milliseconds since 1970
	Dependency string `json:"dependency"`
	Policy     string `json:"policy"`
	From       string `json:"from,omitempty"` // names of states
	To         string `json:"to,omitempty"`
	Why        string `json:"why,omitempty"` // from a closed set
	Words      string `json:"words"`
	Note       string `json:"note,omitempty"` // who and why, of what was done by hand
	Key        string `json:"key,omitempty"`  // for viewers who may see it
}

// Incident is an attempt that was refused or failed.
type Incident struct {
	At     int64  `json:"at"`
	Policy string `json:"policy,omitempty"` // that refused
	Reason string `json:"reason,omitempty"`
	Kind   string `json:"kind"` // how it ended
	Words  string `json:"words"`
	Trace  string `json:"trace,omitempty"`
	Error  string `json:"error,omitempty"` // for viewers who may see it
	Key    string `json:"key,omitempty"`   // for viewers who may see it
}

// ring keeps the last entries.
type ring[T any] struct {
	list []T
	next int
}

func (r *ring[T]) add(v T, most int) {
	if len(r.list) < most {
		r.list = append(r.list, v)
		return
	}
	r.list[r.next] = v
	r.next = (r.next + 1) % most
}

// newest returns the entries, newest first, at most so many of those that fit.
func (r *ring[T]) newest(most int, fits func(*T) bool) []T {
	list := make([]T, 0, min(most, len(r.list)))
	for i := range r.list {
		e := &r.list[(r.next+len(r.list)-1-i)%len(r.list)]
		if len(list) == most {
			break
		}
		if fits == nil || fits(e) {
			list = append(list, *e)
		}
	}
	return list
}

// pace admits a few incidents of each sort.
type pace struct {
	refused [policy.NumReasons]atomic.Int64
	ended   [policy.NumKinds]atomic.Int64
}

func admit(last *atomic.Int64, now int64) bool {
	old := last.Load()
	return now-old >= int64(eachReason) && last.CompareAndSwap(old, now)
}

// journal keeps what happened. It is a [policy.Watcher], on the goroutines of calls.
type journal struct {
	registry *policy.Registry
	traceID  func(ctx context.Context) string
	paces    sync.Map // of *pace, by the name of the dependency

	mu       sync.Mutex
	ids      uint64
	changes  ring[Change]
	refusals map[string]*ring[Incident]
	failures map[string]*ring[Incident]
	states   map[stateKey]policy.StateChange // the last of each breaker
	began    map[stateKey]Change             // with which a breaker left the closed state, while it is out of it
}

type stateKey struct{ dependency, policy string }

// OnEvent implements [policy.Observer].
func (j *journal) OnEvent(e policy.Event) {
	if e.Kind != policy.EventStateChange {
		return
	}
	ch := e.Change
	c := Change{
		At: e.Time.UnixMilli(), Dependency: clean(e.Dependency, maxText), Policy: clean(e.Policy, maxText),
		From: ch.From, To: ch.To, Why: ch.Why, Words: changeWords(&ch),
		Note: clean(ch.Note, maxText), Key: clean(ch.Key, maxText),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if ch.Key == "" {
		j.stateLocked(stateKey{e.Dependency, e.Policy}, ch, c)
	}
	j.addLocked(c)
}

// stateLocked notes a change of a breaker that has no keys. It requires that j.mu is
// held.
func (j *journal) stateLocked(k stateKey, ch policy.StateChange, c Change) {
	j.states[k] = ch
	_, out := j.began[k]
	switch {
	case ch.To == "closed" || ch.To == "forced_closed":
		delete(j.began, k)
	case !out && ch.From != ch.To:
		j.began[k] = c
	}
}

// opening returns the change with which a breaker left the closed state. It reports false
// when it is closed, or that was not seen.
func (j *journal) opening(dependency, policyName string) (Change, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.began[stateKey{dependency, policyName}]
	return c, ok
}

func (j *journal) addLocked(c Change) {
	j.ids++
	c.ID = j.ids
	j.changes.add(c, keptChanges)
}

// note adds an entry about something that was done by hand.
func (j *journal) note(c Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addLocked(c)
}

// OnAttempt implements [policy.Watcher].
func (j *journal) OnAttempt(ctx context.Context, e policy.AttemptEnd) {
	v, ok := j.paces.Load(e.Dependency)
	if !ok {
		v, _ = j.paces.LoadOrStore(e.Dependency, new(pace))
	}
	p := v.(*pace) //nolint:forcetypeassert // nothing else is in it
	now := time.Now()
	re, refused := errors.AsType[*policy.RejectedError](e.Err)
	refused = refused && e.Outcome.Kind == policy.NotRun
	if refused && re.Reason < policy.NumReasons {
		if !admit(&p.refused[re.Reason], now.UnixNano()) {
			return
		}
	} else if e.Outcome.Kind >= policy.NumKinds || !admit(&p.ended[e.Outcome.Kind], now.UnixNano()) {
		return
	}
	in := Incident{At: now.UnixMilli(), Kind: e.Outcome.Kind.String(), Key: clean(policy.CallFrom(ctx).Key, maxText)}
	if j.traceID != nil {
		in.Trace = clean(j.traceID(ctx), 64)
	}
	if refused {
		in.Policy, in.Reason = clean(re.Policy, maxText), re.Reason.String()
		in.Words = refusalWords(re.Policy, re.Reason, re.RetryAfter, j.policyNow(re))
		if re.Dependency != e.Dependency {
			in.Words = "further down, in " + clean(re.Dependency, maxText) + ": " + in.Words
		}
	} else {
		in.Words, in.Error = failureWords(e), errorText(e.Err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	kept := j.failures
	if refused {
		kept = j.refusals
	}
	r := kept[e.Dependency]
	if r == nil {
		r = new(ring[Incident])
		kept[e.Dependency] = r
	}
	r.add(in, keptIncident)
}

// policyNow returns the state of the policy that has just refused.
func (j *journal) policyNow(re *policy.RejectedError) *policy.PolicySnapshot {
	p, ok := j.registry.Get(re.Dependency)
	if !ok {
		return nil
	}
	snap := p.Snapshot()
	for i := range snap.Policies {
		if snap.Policies[i].Name == re.Policy {
			return &snap.Policies[i]
		}
	}
	return nil
}

// lastChange returns the last change of state of a breaker, and nil when none was seen.
func (j *journal) lastChange(dependency, policyName string) *policy.StateChange {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ch, ok := j.states[stateKey{dependency, policyName}]; ok {
		return &ch
	}
	return nil
}

// timeline returns the newest changes, of one dependency or, with an empty name, of all.
func (j *journal) timeline(dependency string, most int, v Viewer) []Change {
	j.mu.Lock()
	defer j.mu.Unlock()
	dependency = clean(dependency, maxText)
	list := j.changes.newest(most, func(c *Change) bool { return dependency == "" || c.Dependency == dependency })
	for i := range list {
		if !v.Private {
			list[i].Key = ""
		}
	}
	return list
}

// incidents returns the newest refusals or failures of a dependency.
func (j *journal) incidents(of map[string]*ring[Incident], dependency string, v Viewer) []Incident {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := of[dependency]
	if r == nil {
		return []Incident{}
	}
	list := r.newest(keptIncident, nil)
	for i := range list {
		if !v.Private {
			list[i].Error, list[i].Key = "", ""
		}
	}
	return list
}
