package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// ConfigState says which configuration is in force, and what is wrong with the one that
// was loaded last.
type ConfigState struct {
	Version uint64   `json:"version"`
	Name    string   `json:"name"`
	Since   int64    `json:"since,omitempty"` // milliseconds since 1970, as all here
	Applied uint64   `json:"applied"`
	Refused uint64   `json:"refused"`
	Faults  []string `json:"faults,omitempty"` // each with its place, such as breakwater.yaml:12:7; empty when all is well
	FaultAt int64    `json:"faultAt,omitempty"`
	Managed bool     `json:"managed"` // settings say where they come from, and changes by hand survive reloads
}

// ConfigHistory is the answer of the API's config.
type ConfigHistory struct {
	Config   *ConfigState    `json:"config"`   // null when nothing was loaded
	Versions []ConfigVersion `json:"versions"` // the one in force first
}

// ConfigVersion is a configuration that took effect.
type ConfigVersion struct {
	Number      int          `json:"number"`
	At          int64        `json:"at"`
	Why         string       `json:"why"`            // load, reload, hand, expired or rollback
	Note        string       `json:"note,omitempty"` // who and why, of what was done by hand
	Changes     []string     `json:"changes,omitempty"`
	Differences []Difference `json:"differences,omitempty"` // from the version before
}

// EffectiveSetting is a setting of a policy, and where it comes from.
type EffectiveSetting struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Layer  string `json:"layer"`
	Origin string `json:"origin,omitempty"` // such as breakwater.yaml:12:7; none of a default
	Note   string `json:"note,omitempty"`   // who and why, of one that was set by hand
	Until  int64  `json:"until,omitempty"`  // when that ends
}

// PolicySettings are the settings of a policy.
type PolicySettings struct {
	Policy   string             `json:"policy"`
	Kind     string             `json:"kind"`
	Settings []EffectiveSetting `json:"settings"`
}

const (
	keptFaults   = 20
	keptVersions = 50
	configPolicy = "configuration" // stands for the policy in the books
)

// configState says which configuration is in force, nil when none was ever loaded.
func (d *Dashboard) configState() *ConfigState {
	c := d.registry.Config()
	if c.Applied+c.Refused == 0 {
		return nil
	}
	s := &ConfigState{
		Version: c.Version, Name: clean(c.Name, maxText), Applied: c.Applied, Refused: c.Refused,
		Faults: faultLines(c.LastError), Managed: d.cfg.Console != nil,
	}
	if !c.Since.IsZero() {
		s.Since = c.Since.UnixMilli()
	}
	if c.LastError != nil {
		s.FaultAt = c.RefusedAt.UnixMilli()
	}
	return s
}

// faultLines has a line for each of joined errors.
func faultLines(err error) (lines []string) {
	var add func(error)
	add = func(err error) {
		switch joined := err.(type) { //nolint:errorlint // the joined ones are looked at one by one
		case nil:
		case interface{ Unwrap() []error }:
			for _, e := range joined.Unwrap() {
				add(e)
			}
		default:
			lines = append(lines, clean(err.Error(), 2*maxText))
		}
	}
	add(err)
	if more := len(lines) - keptFaults; more > 0 {
		lines = append(lines[:keptFaults], fmt.Sprintf("and %d more", more))
	}
	return lines
}

// configHistory lists the versions that are kept.
func (d *Dashboard) configHistory() ConfigHistory {
	h := ConfigHistory{Config: d.configState(), Versions: []ConfigVersion{}}
	if d.cfg.Console == nil {
		return h
	}
	for _, v := range slices.Backward(d.cfg.Console.Status().Versions) {
		cv := ConfigVersion{Number: v.Number, At: v.Time.UnixMilli(), Why: clean(v.Why, maxText), Note: clean(v.Note, maxText)}
		for _, line := range v.Changes {
			cv.Changes = append(cv.Changes, clean(line, 2*maxText))
		}
		for _, diff := range v.Differences {
			cv.Differences = append(cv.Differences, settingDifference(diff))
		}
		if h.Versions = append(h.Versions, cv); len(h.Versions) == keptVersions {
			break
		}
	}
	return h
}

// settingDifference puts a difference into words.
func settingDifference(s policy.SettingDifference) Difference {
	from, to := s.Old, s.New
	if s.Origin != "" {
		from += " (" + s.Origin + ")"
	}
	return Difference{clean(s.Path, maxText), clean(orNothing(from), maxText), clean(orNothing(to), maxText)}
}

func orNothing(s string) string {
	if s == "" {
		return "the default"
	}
	return s
}

// settings lists the settings of a dependency, policy by policy.
func (d *Dashboard) settings(dependency string) (list []PolicySettings) {
	if d.cfg.Console == nil {
		return nil
	}
	for _, s := range d.cfg.Console.Settings(dependency) {
		e := EffectiveSetting{
			Field: clean(s.Field, maxText), Value: clean(s.Value, maxText), Layer: s.Layer, Origin: clean(s.Origin, maxText), Note: clean(s.Note, maxText),
		}
		if !s.Until.IsZero() {
			e.Until = s.Until.UnixMilli()
		}
		name := clean(s.Policy, maxText)
		if len(list) == 0 || list[len(list)-1].Policy != name {
			list = append(list, PolicySettings{Policy: name, Kind: clean(s.Kind, maxText)})
		}
		last := &list[len(list)-1]
		last.Settings = append(last.Settings, e)
	}
	return list
}

// configured returns the settings of a policy by their fields: nil when they are not those
// of a console.
func configured(c policy.Console, dependency, policyName string) map[string]string {
	if c == nil {
		return nil
	}
	var fields map[string]string
	for _, s := range c.Settings(dependency) {
		if s.Policy == policyName {
			if fields == nil {
				fields = map[string]string{}
			}
			fields[s.Field] = s.Value
		}
	}
	return fields
}

// throughConsole returns the change of an action that is made by the console, so that it
// survives what is loaded: nil for others.
func (h *hand) throughConsole(t *target, a *Action) *policy.HandChange {
	c := &policy.HandChange{Dependency: a.Dependency, Policy: a.Policy, Values: map[string]string{}}
	switch a.Action {
	case actChange:
		maps.Copy(c.Values, a.Texts)
		return c
	case actSet:
		for _, s := range t.control.Tunable.Settings() {
			v, ok := a.Values[s.Name]
			if !ok {
				continue
			}
			if _, ok := t.configured[s.Name]; !ok {
				return nil
			}
			c.Values[s.Name] = strconv.FormatFloat(v, 'f', -1, 64)
			if s.Unit == "per second" {
				c.Values[s.Name] += "/s"
			}
		}
		return c
	case actShadow, actEnforce:
		if _, ok := t.configured["Shadow"]; ok {
			c.Values["Shadow"] = strconv.FormatBool(a.Action == actShadow)
			return c
		}
	}
	return nil
}

// previewChange says what a change by the console does.
func (h *hand) previewChange(ctx context.Context, c *policy.HandChange, p *Preview) error {
	e, err := h.cfg.Console.Preview(ctx, *c)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", clean(err.Error(), 2*maxText))
	}
	p.Differences = nil
	for _, diff := range e.Differences {
		p.Differences = append(p.Differences, settingDifference(diff))
	}
	p.Undo = "ends the setting: what the configuration says by then holds again"
	p.warnOf(e.Policies)
	return nil
}

// warnOf warns of policies that forget what they know.
func (p *Preview) warnOf(list []policy.Replacement) {
	for _, r := range list {
		switch r.Change {
		case policy.ChangeReset, policy.ChangeAdded, policy.ChangeRemoved:
			p.Warning = strings.TrimPrefix(p.Warning+"; "+clean(r.String(), maxText), "; ")
		case policy.ChangeKept, policy.ChangeResized:
		}
	}
	if p.Warning != "" {
		p.Warning = "what these know is lost: " + p.Warning
	}
}

// change makes a change by the console.
func (h *hand) change(ctx context.Context, c *policy.HandChange, length time.Duration, note string) (undo func(string) error, err error) {
	ctx = context.WithoutCancel(ctx) // it is done, or not, whoever waits for the answer; and undone later
	c.Length, c.Note = length, note
	id, err := h.cfg.Console.Change(ctx, *c)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", clean(err.Error(), 2*maxText))
	}
	h.replaced(c)
	return func(string) error { return h.cfg.Console.Undo(ctx, id) }, nil
}

// replaced takes out of the books what a change takes the place of.
func (h *hand) replaced(by *policy.HandChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inForce = slices.DeleteFunc(h.inForce, func(c change) bool {
		if c.texts == nil || c.entry.Dependency != by.Dependency || c.entry.Policy != by.Policy {
			return false
		}
		for field := range by.Values { // the console finds them in any case
			maps.DeleteFunc(c.texts, func(old, _ string) bool { return strings.EqualFold(old, field) })
		}
		return len(c.texts) == 0
	})
}

// previewRollback says what it would do to put an earlier version into effect.
func (h *hand) previewRollback(ctx context.Context, a *Action) (p Preview, err error) {
	if h.cfg.Console == nil {
		return p, refuse(http.StatusBadRequest, "there are no versions: the dashboard has no Console")
	}
	e, err := h.cfg.Console.PreviewRollback(ctx, a.Version)
	if err != nil {
		return p, refuse(http.StatusNotFound, "%s", clean(err.Error(), 2*maxText))
	}
	now := h.registry.Config().Version
	p = Preview{
		Differences: []Difference{}, Ends: "with the next load: the file is read again then", Undo: "is not possible: roll back to the present version instead",
		Expect: fmt.Sprintf("version=%d", now),
	}
	for _, diff := range e.Differences {
		p.Differences = append(p.Differences, settingDifference(diff))
	}
	p.warnOf(e.Policies)
	return p, nil
}

// rollback puts an earlier version into effect.
func (h *hand) rollback(ctx context.Context, a *Action, pre *Preview, who, remote string, now time.Time) (AuditEntry, error) {
	if err := h.cfg.Console.Rollback(context.WithoutCancel(ctx), a.Version, who+": "+a.Why); err != nil {
		return AuditEntry{}, refuse(http.StatusBadRequest, "%s", clean(err.Error(), 2*maxText))
	}
	words := fmt.Sprintf("back to version %d", a.Version)
	if diff := differenceWords(pre.Differences); diff != "" {
		words += ": " + diff
	}
	return h.keep(change{entry: AuditEntry{
		Time: now, Who: who, Why: a.Why, Remote: remote, Policy: configPolicy, Action: actRollback, Words: words,
	}}, a), nil
}

// configWatch notes in the timeline when another configuration takes effect, or is refused.
type configWatch struct {
	dashboard *Dashboard
	last      policy.ConfigSnapshot
}

func (w *configWatch) look() {
	was, is := w.last, w.dashboard.registry.Config()
	w.last = is
	if is.Refused > was.Refused && is.LastError != nil {
		lines := faultLines(is.LastError)
		words := "a configuration was refused, and nothing has changed: " + lines[0]
		if len(lines) > 1 {
			words += fmt.Sprintf(" (and %d more)", len(lines)-1)
		}
		w.note(is.RefusedAt, "config_refused", words)
	}
	if is.Version == was.Version {
		return
	}
	words := "configuration " + clean(is.Name, maxText) + " is in force"
	if c := w.dashboard.cfg.Console; c != nil {
		if versions := c.Status().Versions; len(versions) > 0 {
			last := versions[len(versions)-1]
			if last.Why == "hand" || last.Note != "" {
				return // which is in the timeline with who did it
			}
			if len(last.Changes) > 0 {
				words += ": " + clean(strings.Join(last.Changes, "; "), 2*maxText)
			}
		}
	}
	w.note(is.Since, "config", words)
}

func (w *configWatch) note(at time.Time, why, words string) {
	w.dashboard.journal.note(Change{At: at.UnixMilli(), Policy: configPolicy, Why: why, Words: words})
}
