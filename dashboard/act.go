package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// The actions.
const (
	actForceOpen   = "force_open"
	actForceClosed = "force_closed"
	actObserve     = "observe"
	actRelease     = "release"
	actReset       = "reset"
	actSet         = "set"
	actShadow      = "shadow"
	actEnforce     = "enforce"
	actUndo        = "undo"
	actChange      = "change"
	actRollback    = "rollback"
)

// Action is a change by hand, as a viewer asks for it.
type Action struct {
	Dependency string             `json:"dependency"`
	Policy     string             `json:"policy"`
	Key        string             `json:"key,omitempty"` // of a keyed breaker
	Action     string             `json:"action"`
	Values     map[string]float64 `json:"values,omitempty"`  // of set
	Texts      map[string]string  `json:"texts,omitempty"`   // of change: settings by their fields, as a file has them
	Version    int                `json:"version,omitempty"` // of rollback
	Seconds    float64            `json:"seconds,omitempty"` // after which it ends; of all but release, reset and rollback
	Why        string             `json:"why,omitempty"`
	Expect     string             `json:"expect,omitempty"` // what a preview called the state; another one is a conflict
}

// Preview is the difference that an action would make.
type Preview struct {
	Differences []Difference `json:"differences"`
	Ends        string       `json:"ends"`              // when it ends, in words
	Undo        string       `json:"undo"`              // what undoing it does, in words
	Shared      []string     `json:"shared,omitempty"`  // other pipelines that the policy stands in
	Warning     string       `json:"warning,omitempty"` // what is likely to surprise
	Expect      string       `json:"expect"`
}

// Difference is a figure before and after.
type Difference struct {
	What string `json:"what"`
	From string `json:"from"`
	To   string `json:"to"`
}

// AuditEntry reports an action, or the refusal of one.
type AuditEntry struct {
	ID         uint64    `json:"id"` // 0 for what was refused
	Time       time.Time `json:"time"`
	Who        string    `json:"who"`
	Why        string    `json:"why"`
	Remote     string    `json:"remote,omitempty"` // address the request came from
	Dependency string    `json:"dependency"`
	Policy     string    `json:"policy"`
	Key        string    `json:"key,omitempty"`
	Action     string    `json:"action"`
	Words      string    `json:"words"`             // what was changed
	Refused    string    `json:"refused,omitempty"` // why nothing was done
	Ends       time.Time `json:"ends,omitzero"`     // when it ends by itself
}

// InForce is an action that goes on and can be undone.
type InForce struct {
	AuditEntry
	Undoable bool `json:"undoable"`
}

// Offers is what can be changed of a policy.
type Offers struct {
	Actions  []string  `json:"actions"`
	Settings []Setting `json:"settings,omitempty"`
	Keyed    bool      `json:"keyed,omitempty"` // commands need a key
}

// Setting is a number that can be changed.
type Setting struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Whole bool    `json:"whole"`
	Unit  string  `json:"unit"`
}

const (
	keptAudit  = 200
	maxReason  = 500
	maxInForce = 1000
)

// refusal is why an action was not done, with the status that says so.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// change is an action that was done and how to take it back.
type change struct {
	entry AuditEntry
	undo  func(note string) error // nil when it cannot be taken back
	ends  time.Time               // when undo is called by itself; zero when the policy sees to it
	over  time.Time               // when the policy ends it itself; zero for never or for ends

	values, base map[string]float64 // of set: what was set, and what was there before; those that still count
	texts        map[string]string  // of what the console has set; those that still count
	mode         bool               // of shadow and enforce
}

// hand does what is done by hand, and keeps the books.
type hand struct {
	registry *policy.Registry
	journal  *journal
	cfg      Config

	mu      sync.Mutex
	ids     uint64
	inForce []change
	done    ring[AuditEntry]
	refused ring[AuditEntry]

	// One at a time, so that what is shown as before is what was.
	acting sync.Mutex
}

// target is the policy that an action is about.
type target struct {
	pipe      *policy.Pipeline
	control   policy.Control
	commander policy.Commander
	snap      policy.PolicySnapshot
	now       time.Time

	configured map[string]string // settings by their fields; nil when there is no console for them
}

func (h *hand) find(a *Action) (t target, err error) {
	pipe, ok := h.registry.Get(a.Dependency)
	if !ok {
		return t, refuse(http.StatusNotFound, "there is no dependency of this name")
	}
	t.pipe = pipe
	controls := pipe.Controls()
	i := slices.IndexFunc(controls, func(c policy.Control) bool { return c.Name == a.Policy })
	if i < 0 && a.Action == actChange && configured(h.cfg.Console, a.Dependency, a.Policy) != nil { // such as timeouts
		controls, i = []policy.Control{{Name: a.Policy}}, 0
	}
	if i < 0 {
		return t, refuse(http.StatusNotFound, "the dependency has no policy of this name that can be changed")
	}
	t.control = controls[i]
	snap := pipe.Snapshot()
	t.now = snap.Time
	for _, p := range snap.Policies {
		if p.Name == a.Policy {
			t.snap = p
		}
	}
	t.configured = configured(h.cfg.Console, a.Dependency, a.Policy)
	t.commander = t.control.Commander
	if t.control.Keyed != nil && a.Action != actSet && a.Action != actChange && a.Action != actShadow && a.Action != actEnforce {
		c, ok := t.control.Keyed.Commander(a.Key)
		if !ok {
			return t, refuse(http.StatusNotFound, "the breaker knows no such key")
		}
		t.commander = c
	}
	return t, nil
}

// state says how the target is, so that an action can insist on it. A breaker's
// counters move all the time and are not in it.
func (t *target) state() string {
	parts := []string{fmt.Sprintf("shadow=%v", t.snap.Shadow)}
	if b := t.snap.Breaker; b != nil {
		parts = append(parts, fmt.Sprintf("state=%s generation=%d observing=%v note=%q", b.State, b.Generation, b.Observing, b.Note))
	}
	if t.control.Tunable != nil {
		for _, set := range t.control.Tunable.Settings() {
			parts = append(parts, fmt.Sprintf("%s=%g", set.Name, set.Value))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(t.configured)) {
		parts = append(parts, field+"="+t.configured[field])
	}
	return strings.Join(parts, " ")
}

// length checks how long an action is to last.
func (h *hand) length(a *Action) (time.Duration, error) {
	switch a.Action {
	case actRelease, actReset, actRollback:
		return 0, nil
	}
	if !(a.Seconds >= 1 && a.Seconds <= h.cfg.MaxFor.Seconds()) { // written so that NaN fails
		return 0, refuse(http.StatusBadRequest, "say after how many seconds it ends: 1 to %.0f", h.cfg.MaxFor.Seconds())
	}
	return time.Duration(a.Seconds * float64(time.Second)), nil
}

// preview says what an action would change. It changes nothing.
func (h *hand) preview(ctx context.Context, a *Action) (Preview, error) {
	if a.Action == actRollback {
		return h.previewRollback(ctx, a)
	}
	length, err := h.length(a)
	if err != nil {
		return Preview{}, err
	}
	t, err := h.find(a)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Expect: t.state(), Ends: "at once: it is a single step"}
	if length > 0 {
		p.Ends = "by itself in " + howLong(length)
	}
	p.Shared = h.sharedWith(&t)
	before := "?"
	if b := t.snap.Breaker; b != nil {
		before = breakerWords(b, t.now)
		if t.control.Keyed != nil {
			before = "as its calls have it"
		}
	}
	switch a.Action {
	case actForceOpen, actForceClosed, actObserve, actRelease, actReset:
		if t.commander == nil {
			return p, refuse(http.StatusBadRequest, "the policy takes no such command: it is no breaker")
		}
		after, undo, warn := commandWordsOf(a.Action)
		p.Differences = append(p.Differences, Difference{"state", before, after})
		p.Undo, p.Warning = undo, warn
	case actSet:
		if p.Differences, err = t.settings(a.Values); err != nil {
			return p, err
		}
		p.Undo = "sets the values of before, unless somebody has changed them since"
		for _, d := range p.Differences {
			if d.What == "Limit" && t.snap.Bulkhead != nil && a.Values["Limit"] < float64(t.snap.Bulkhead.InFlight) {
				p.Warning = fmt.Sprintf("%d are in flight: nobody is let in until fewer than the new limit are", t.snap.Bulkhead.InFlight)
			}
		}
		if c := h.throughConsole(&t, a); c != nil {
			warning := p.Warning
			if err := h.previewChange(ctx, c, &p); err != nil {
				return p, err
			}
			p.Warning = cmp.Or(p.Warning, warning)
		}
	case actChange:
		if t.configured == nil {
			return p, refuse(http.StatusBadRequest, "the settings of this policy do not come from a configuration that the dashboard knows of")
		}
		if err := h.previewChange(ctx, h.throughConsole(&t, a), &p); err != nil {
			return p, err
		}
	case actShadow, actEnforce:
		if !t.control.Gate {
			return p, refuse(http.StatusBadRequest, "the policy is no gate, so it cannot only watch")
		}
		words := map[bool]string{true: "only watches: every call passes", false: "enforces what it decides"}
		p.Differences = append(p.Differences, Difference{"mode", words[t.snap.Shadow], words[a.Action == actShadow]})
		p.Undo = "switches back, unless somebody has switched it since"
		if c := h.throughConsole(&t, a); c != nil {
			diffs := p.Differences
			if err := h.previewChange(ctx, c, &p); err != nil {
				return p, err
			}
			p.Differences = append(diffs, p.Differences...)
		}
		if a.Action == actShadow {
			p.Warning = "the dependency gets every call that this policy would have refused"
		}
		p.Shared = nil // other pipelines are not touched
	default:
		return p, refuse(http.StatusBadRequest, "there is no such action")
	}
	return p, nil
}

// commandWordsOf says what a command leads to.
func commandWordsOf(action string) (after, undo, warning string) {
	switch action {
	case actForceOpen:
		return "forced open: every call is refused", "ends the command; the breaker is then half-open and probes", "every call is refused, whatever the dependency does"
	case actForceClosed:
		return "forced closed: every call is let through", "ends the command; the breaker is then closed with what it has counted", "the dependency gets every call, however many fail"
	case actObserve:
		return "only watches: decides, and lets through what it would refuse", "ends the command", "the dependency gets every call that the breaker would have refused"
	case actRelease:
		return "as its calls have it: the command in force ends", "is not possible: give the command again", ""
	default:
		return "closed, with everything forgotten", "is not possible: what was counted is gone", "if the dependency is still sick, it opens again after the minimum of calls"
	}
}

// settings checks the values of an action and says what they change.
func (t *target) settings(values map[string]float64) (diffs []Difference, err error) {
	if t.control.Tunable == nil {
		return nil, refuse(http.StatusBadRequest, "nothing of this policy can be set while it runs")
	}
	if len(values) == 0 {
		return nil, refuse(http.StatusBadRequest, "say what to set: values is empty")
	}
	known := 0
	for _, s := range t.control.Tunable.Settings() {
		v, ok := values[s.Name]
		if !ok {
			continue
		}
		known++
		if !(v >= s.Least && v <= s.Most) || s.Whole && v != float64(int64(v)) { // written so that NaN fails
			whole := ""
			if s.Whole {
				whole = "a whole number, "
			}
			return nil, refuse(http.StatusBadRequest, "%s: want %s%s to %s", s.Name, whole, number(s.Least), number(s.Most))
		}
		diffs = append(diffs, Difference{s.Name, strings.TrimSpace(number(finite(s.Value)) + " " + s.Unit), strings.TrimSpace(number(v) + " " + s.Unit)})
	}
	if known != len(values) {
		return nil, refuse(http.StatusBadRequest, "the policy has no setting of this name")
	}
	return diffs, nil
}

// sharedWith lists the other pipelines that the policy stands in.
func (h *hand) sharedWith(t *target) (names []string) {
	for p := range h.registry.All() {
		if p == t.pipe {
			continue
		}
		for _, c := range p.Controls() {
			same := c.Commander != nil && c.Commander == t.control.Commander ||
				c.Keyed != nil && c.Keyed == t.control.Keyed ||
				c.Tunable != nil && c.Tunable == t.control.Tunable
			if same {
				names = append(names, clean(p.Name(), maxText))
			}
		}
	}
	return names
}

// act does an action. who and a.Why must not be empty.
func (h *hand) act(ctx context.Context, a *Action, who, remote string, now time.Time) (AuditEntry, error) {
	h.acting.Lock()
	defer h.acting.Unlock()
	pre, err := h.preview(ctx, a)
	if err != nil {
		return AuditEntry{}, err
	}
	if a.Expect != "" && a.Expect != pre.Expect {
		return AuditEntry{}, refuse(http.StatusConflict, "it has changed since the preview: look again")
	}
	h.mu.Lock()
	full := len(h.inForce) >= maxInForce
	h.mu.Unlock()
	if full {
		return AuditEntry{}, refuse(http.StatusConflict, "%d changes are in force: undo some", maxInForce)
	}
	if a.Action == actRollback {
		return h.rollback(ctx, a, &pre, who, remote, now)
	}
	t, err := h.find(a)
	if err != nil {
		return AuditEntry{}, err
	}
	length, _ := h.length(a) // preview has checked it
	c := change{entry: AuditEntry{
		Time: now, Who: who, Why: a.Why, Remote: remote,
		Dependency: a.Dependency, Policy: a.Policy, Key: a.Key, Action: a.Action, Words: differenceWords(pre.Differences),
	}}
	if length > 0 {
		c.entry.Ends = now.Add(length)
	}
	note := who + ": " + a.Why
	if by := h.throughConsole(&t, a); by != nil {
		if c.undo, err = h.change(ctx, by, length, note); err != nil {
			return AuditEntry{}, err
		}
		c.texts, c.over = by.Values, c.entry.Ends
		return h.keep(c, a), nil
	}
	switch a.Action {
	case actForceOpen:
		t.commander.ForceOpen(note, length)
		c.over = c.entry.Ends
		c.undo = release(t.commander)
	case actForceClosed:
		t.commander.ForceClosed(note, length)
		c.over = c.entry.Ends
		c.undo = release(t.commander)
	case actObserve:
		t.commander.Observe(note, length)
		c.over = c.entry.Ends
		c.undo = release(t.commander)
	case actRelease:
		t.commander.Release(note)
		h.forget(a)
	case actReset:
		t.commander.Reset()
		h.forget(a)
	case actSet:
		if c.values, c.base, err = h.set(t.control.Tunable, a); err != nil {
			return AuditEntry{}, refuse(http.StatusBadRequest, "%s", clean(err.Error(), 2*maxText))
		}
		c.undo, c.ends = setBack(t.control.Tunable, c.values, c.base), c.entry.Ends
	case actShadow, actEnforce:
		shadow := a.Action == actShadow
		if err := t.pipe.SetShadow(a.Policy, shadow); err != nil {
			return AuditEntry{}, refuse(http.StatusBadRequest, "%s", clean(err.Error(), 2*maxText))
		}
		// Of two modes the second switch goes back to the first, and nothing is in force.
		if t.snap.Shadow != shadow && !h.forgetMode(a) {
			c.undo = switchBack(t.pipe, a.Policy, shadow)
			c.ends, c.mode = c.entry.Ends, true
		}
	}
	return h.keep(c, a), nil
}

func release(c policy.Commander) func(string) error {
	return func(note string) error {
		c.Release(note)
		return nil
	}
}

// set sets values. What was set by hand before is replaced: its end and its undoing would
// otherwise bring back a value that was itself set by hand. So the change that it returns
// knows the values from before the first of them.
func (h *hand) set(t policy.Tunable, a *Action) (values, base map[string]float64, err error) {
	values, base = map[string]float64{}, map[string]float64{}
	now := map[string]float64{}
	for _, s := range t.Settings() {
		now[s.Name] = s.Value
	}
	if err := t.Tune(a.Values); err != nil {
		return nil, nil, fmt.Errorf("setting: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, v := range a.Values {
		values[name], base[name] = v, now[name]
		for i := range h.inForce {
			c := &h.inForce[i]
			if old, ok := c.values[name]; ok && c.about(a) {
				if same(old, now[name]) { // nobody else has changed it since
					base[name] = c.base[name]
				}
				delete(c.values, name)
			}
		}
	}
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool { return c.values != nil && len(c.values) == 0 })
	return values, base, nil
}

// about reports whether a change is one of the policy of an action.
func (c *change) about(a *Action) bool {
	return c.entry.Dependency == a.Dependency && c.entry.Policy == a.Policy
}

// setBack sets the values of before, where they are still as they were set.
func setBack(t policy.Tunable, values, base map[string]float64) func(string) error {
	return func(string) error {
		back := map[string]float64{}
		for _, s := range t.Settings() {
			if v, ok := values[s.Name]; ok && same(s.Value, v) {
				back[s.Name] = base[s.Name]
			}
		}
		if len(back) == 0 {
			return nil // a reload, or somebody else, has set others
		}
		return t.Tune(back)
	}
}

// same compares values that may have gone through a rate and back.
func same(a, b float64) bool { return a == b || (a-b)/b < 1e-9 && (b-a)/b < 1e-9 }

func switchBack(p *policy.Pipeline, name string, shadow bool) func(string) error {
	return func(string) error {
		for _, c := range p.Controls() {
			if c.Name == name && c.Shadow == shadow {
				return p.SetShadow(name, !shadow)
			}
		}
		return nil
	}
}

func differenceWords(diffs []Difference) string {
	var parts []string
	for _, d := range diffs {
		parts = append(parts, fmt.Sprintf("%s: %s → %s", d.What, d.From, d.To))
	}
	return strings.Join(parts, "; ")
}

// keep enters an action that was done into the books.
func (h *hand) keep(c change, a *Action) AuditEntry {
	h.mu.Lock()
	h.ids++
	c.entry.ID = h.ids
	if c.undo != nil && c.over != (time.Time{}) && c.texts == nil {
		h.dropLocked(a) // a command replaces the one before
	}
	if c.undo != nil {
		h.inForce = append(h.inForce, c)
	}
	h.done.add(c.entry, keptAudit)
	h.mu.Unlock()
	h.tell(c.entry)
	return c.entry
}

// forget drops the command in force, which has ended.
func (h *hand) forget(a *Action) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(a)
}

// forgetMode drops the switch of a gate's mode that is in force. It reports false when
// there is none.
func (h *hand) forgetMode(a *Action) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.inForce)
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool { return c.mode && c.about(a) })
	return len(h.inForce) < n
}

// dropLocked drops the commands of a breaker. It requires that h.mu is held.
func (h *hand) dropLocked(a *Action) {
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool {
		return c.over != (time.Time{}) && c.texts == nil && c.entry.Dependency == a.Dependency && c.entry.Policy == a.Policy && c.entry.Key == a.Key
	})
}

// tell reports an entry to the hook, and a change of a setting to the timeline; what a
// breaker does is there already.
func (h *hand) tell(e AuditEntry) {
	if e.Refused == "" {
		switch e.Action {
		case actSet, actShadow, actEnforce, actUndo, actReset, actChange, actRollback:
			h.journal.note(Change{
				At: e.Time.UnixMilli(), Dependency: clean(e.Dependency, maxText), Policy: clean(e.Policy, maxText), Why: e.Action,
				Words: clean(e.Words, 2*maxText), Note: clean(e.Who+": "+e.Why, maxText),
			})
		}
	}
	defer func() { _ = recover() }() // the hook is not ours
	h.cfg.Audit(e)
}

// refusedEntry enters an action that was refused into the books.
func (h *hand) refusedEntry(e AuditEntry) {
	h.mu.Lock()
	h.refused.add(e, keptAudit)
	h.mu.Unlock()
	h.tell(e)
}

// undo takes an action back.
func (h *hand) undo(id uint64, who, why, remote string, now time.Time) (AuditEntry, error) {
	h.acting.Lock()
	defer h.acting.Unlock()
	h.mu.Lock()
	i := slices.IndexFunc(h.inForce, func(c change) bool { return c.entry.ID == id })
	if i < 0 {
		h.mu.Unlock()
		return AuditEntry{}, refuse(http.StatusNotFound, "there is no such change in force: it has ended, was replaced or was undone")
	}
	c := h.inForce[i]
	h.mu.Unlock()
	if err := c.undo(who + ": " + why); err != nil { // it goes on, and may be undone later
		return AuditEntry{}, refuse(http.StatusConflict, "%s", clean(err.Error(), 2*maxText))
	}
	h.mu.Lock()
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool { return c.entry.ID == id })
	h.mu.Unlock()
	return h.ended(c, who, why, remote, now), nil
}

// ended enters the end of a change into the books.
func (h *hand) ended(c change, who, why, remote string, now time.Time) AuditEntry {
	e := c.entry
	e.Time, e.Who, e.Why, e.Remote, e.Action = now, who, why, remote, actUndo
	e.Words, e.Ends = "taken back: "+c.entry.Words, time.Time{}
	h.mu.Lock()
	h.ids++
	e.ID = h.ids
	h.done.add(e, keptAudit)
	h.mu.Unlock()
	h.tell(e)
	return e
}

// expire ends what has run out.
func (h *hand) expire(now time.Time) {
	h.acting.Lock()
	defer h.acting.Unlock()
	h.mu.Lock()
	var out, over []change
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool {
		if !c.over.IsZero() && !now.Before(c.over) {
			if c.texts != nil {
				over = append(over, c)
			}
			return true // the policy, or the console, has seen to it
		}
		if !c.ends.IsZero() && !now.Before(c.ends) {
			out = append(out, c)
			return true
		}
		return false
	})
	h.mu.Unlock()
	h.takeBack(out, "its time is over", now)
	for _, c := range over {
		h.ended(c, configKind, "its time is over", "", now)
	}
}

// close takes back what nobody would otherwise end.
func (h *hand) close(now time.Time) {
	h.acting.Lock()
	defer h.acting.Unlock()
	h.mu.Lock()
	out := slices.DeleteFunc(slices.Clone(h.inForce), func(c change) bool { return c.ends.IsZero() })
	h.inForce = nil
	h.mu.Unlock()
	h.takeBack(out, "the dashboard was closed", now)
}

func (h *hand) takeBack(list []change, why string, now time.Time) {
	// The last first: of two changes of one value the first knows the original.
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(b.entry.ID, a.entry.ID) })
	for _, c := range list {
		reason := why
		if err := c.undo(configKind + ": " + why); err != nil {
			reason += " (" + clean(err.Error(), maxText) + ")"
		}
		h.ended(c, configKind, reason, "", now)
	}
}

// byHand lists the policies of a dependency with a value that was set by hand.
func (h *hand) byHand(dependency string) (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.inForce {
		if c.entry.Dependency == dependency && (!c.ends.IsZero() || c.texts != nil) {
			names = append(names, clean(c.entry.Policy, maxText))
		}
	}
	return names
}

// audit returns what was done, what was refused and what is in force, newest first.
func (h *hand) audit(v Viewer) (done, refused []AuditEntry, inForce []InForce) {
	h.mu.Lock()
	defer h.mu.Unlock()
	done, refused = h.done.newest(keptAudit, nil), h.refused.newest(keptAudit, nil)
	inForce = []InForce{}
	for _, c := range slices.Backward(h.inForce) {
		inForce = append(inForce, InForce{c.entry, v.Act && h.cfg.Actions})
	}
	shown := func(e *AuditEntry) {
		e.Dependency, e.Policy = clean(e.Dependency, maxText), clean(e.Policy, maxText)
		e.Who, e.Why, e.Words = clean(e.Who, maxText), clean(e.Why, maxReason), clean(e.Words, 2*maxText)
		e.Key = clean(e.Key, maxText)
		if !v.Private {
			e.Key, e.Remote = "", ""
		}
	}
	for i := range done {
		shown(&done[i])
	}
	for i := range refused {
		shown(&refused[i])
	}
	for i := range inForce {
		shown(&inForce[i].AuditEntry)
	}
	return done, refused, inForce
}

// offers says for each policy of a pipeline what the viewer may change.
func (d *Dashboard) offers(pipe *policy.Pipeline, v Viewer) map[string]*Offers {
	if !d.cfg.Actions || !v.Act || v.Name == "" {
		return nil
	}
	all := map[string]*Offers{}
	for _, c := range pipe.Controls() {
		o := &Offers{Keyed: c.Keyed != nil}
		if c.Commander != nil || c.Keyed != nil {
			o.Actions = append(o.Actions, actForceOpen, actForceClosed, actObserve, actRelease, actReset)
		}
		if c.Tunable != nil {
			o.Actions = append(o.Actions, actSet)
			for _, s := range c.Tunable.Settings() {
				o.Settings = append(o.Settings, Setting{clean(s.Name, maxText), finite(s.Value), s.Least, s.Most, s.Whole, s.Unit})
			}
		}
		switch {
		case c.Shadow && c.Gate:
			o.Actions = append(o.Actions, actEnforce)
		case c.Gate && c.Commander == nil && c.Keyed == nil: // a breaker observes, which says so in its state
			o.Actions = append(o.Actions, actShadow)
		}
		if len(o.Actions) > 0 {
			all[c.Name] = o
		}
	}
	return all
}

// may says what the viewer may do, about one dependency or, with an empty name, in
// general. The first item says so in a line.
func (d *Dashboard) may(v Viewer, dependency string) (items []Item) {
	switch {
	case !d.cfg.Actions:
		return []Item{{Text: "look only: actions are turned off for this process"}}
	case !v.Act:
		return []Item{{Text: "look only: you have not the authority to act"}}
	case v.Name == "":
		return []Item{{Text: "look only: it is not known who you are"}}
	case dependency == "":
		return []Item{{Text: "force a breaker, reset it, change a limit, or have a policy only watch: open a dependency", Level: LevelNote}}
	}
	pipe, ok := d.registry.Get(dependency)
	if !ok {
		return nil
	}
	var can []string
	for _, c := range pipe.Controls() {
		name := clean(c.Name, maxText)
		var what []string
		if c.Commander != nil {
			what = append(what, "force it open or closed, reset it")
		}
		if c.Keyed != nil {
			what = append(what, "force a key open or closed, reset it")
		}
		if c.Tunable != nil {
			var names []string
			for _, s := range c.Tunable.Settings() {
				names = append(names, fmt.Sprintf("%s (%s now)", clean(s.Name, maxText), number(finite(s.Value))))
			}
			what = append(what, "change "+strings.Join(names, ", "))
		}
		if c.Gate {
			what = append(what, map[bool]string{true: "have it enforce again", false: "have it only watch"}[c.Shadow])
		}
		if len(what) > 0 {
			can = append(can, name)
			items = append(items, Item{Dependency: dependency, Text: name + ": " + strings.Join(what, "; ")})
		}
	}
	if len(can) == 0 {
		return []Item{{Text: "look only: nothing of this dependency can be changed while it runs"}}
	}
	return append([]Item{{Dependency: dependency, Text: "change " + strings.Join(can, ", ") + " by hand, for a time", Level: LevelNote}}, items...)
}

// checked checks who acts and why.
func checked(v Viewer, why string) (string, error) {
	why = strings.TrimSpace(clean(why, maxReason))
	switch {
	case v.Name == "":
		return "", refuse(http.StatusForbidden, "it is not known who you are: Authorize gave no name")
	case why == "":
		return "", refuse(http.StatusBadRequest, "say why: it goes into the audit log")
	}
	return why, nil
}

// statusOf returns the status and the text of a refusal.
func statusOf(err error) (int, string) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, r.text
	}
	return http.StatusInternalServerError, "it did not work"
}
