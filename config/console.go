package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Console returns what a dashboard shows of the manager, and by which it changes settings
// by hand: dashboard.Config{Console: manager.Console()}.
func (m *Manager) Console() policy.Console { return console{m} }

type console struct{ m *Manager }

// Status implements [policy.Console].
func (c console) Status() policy.ConfigStatus {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	s := policy.ConfigStatus{Fault: m.fault, FaultAt: m.faultAt}
	for i, v := range m.versions {
		cv := policy.ConfigVersion{Number: v.Number, Time: v.Time, Why: v.Why, Note: v.Note}
		if v.Report.Changed() {
			cv.Changes = strings.Split(v.Report.String(), "\n")
		}
		if i > 0 {
			cv.Differences = differences(m.versions[i-1].Settings, v.Settings)
		}
		s.Versions = append(s.Versions, cv)
	}
	return s
}

// Settings implements [policy.Console].
func (c console) Settings(dependency string) []policy.EffectiveSetting {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.inForceLocked().dependency(dependency)
	if d == nil {
		return nil
	}
	list := []policy.EffectiveSetting{}
	for i := range d.Policies {
		for _, s := range d.Policies[i].effective() {
			if s.Layer == LayerHand.String() {
				for _, h := range m.hand {
					if plainName(h.Path) == plainName(join(join(dependency, s.Policy), s.Field)) {
						s.Note, s.Until = h.note, h.until
					}
				}
			}
			list = append(list, s)
		}
	}
	return list
}

// Preview implements [policy.Console].
func (c console) Preview(_ context.Context, change policy.HandChange) (policy.ConfigEffect, error) {
	set, err := settingsByHand(change)
	if err != nil {
		return policy.ConfigEffect{}, err
	}
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.inForceLocked().within(change, set); err != nil {
		return policy.ConfigEffect{}, err
	}
	hand := m.hand
	for _, s := range set {
		hand = without(hand, s.Path)
	}
	for _, s := range set {
		hand = append(slices.Clip(hand), byHand{Setting: s})
	}
	return m.previewLocked(m.versions[len(m.versions)-1].contents, hand)
}

// Change implements [policy.Console].
func (c console) Change(ctx context.Context, change policy.HandChange) (uint64, error) {
	set, err := settingsByHand(change)
	if err != nil {
		return 0, err
	}
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.inForceLocked().within(change, set); err != nil {
		return 0, err
	}
	id, _, err := m.setByHandLocked(ctx, set, change.Length, change.Note)
	return id, err
}

// Undo implements [policy.Console].
func (c console) Undo(ctx context.Context, id uint64) error {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(m.hand), func(h byHand) bool { return h.id == id })
	if len(left) == len(m.hand) {
		return nil // it is over, or was replaced
	}
	before := m.hand
	m.hand = left
	_, err := m.adjustLocked(ctx, "hand", "", m.versions[len(m.versions)-1].contents)
	if err != nil {
		m.hand = before
	}
	return err
}

// PreviewRollback implements [policy.Console].
func (c console) PreviewRollback(_ context.Context, version int) (policy.ConfigEffect, error) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := m.versionLocked(version)
	if err != nil {
		return policy.ConfigEffect{}, err
	}
	before := m.hand
	_ = m.dropStaleLocked(v.contents) // as the rollback would
	hand := m.hand
	m.hand = before
	return m.previewLocked(v.contents, hand)
}

// Rollback implements [policy.Console].
func (c console) Rollback(ctx context.Context, version int, note string) error {
	_, err := c.m.rollback(ctx, version, note)
	go func() { // whoever is at the console has nothing to wait for
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
		defer cancel()
		c.m.closeGone(ctx)
	}()
	return err
}

// closeFor is how long pipelines have to close that a rollback by the console has removed.
const closeFor = 30 * time.Second

// settingsByHand takes a change apart.
func settingsByHand(c policy.HandChange) ([]Setting, error) {
	if len(c.Values) == 0 {
		return nil, &policy.ConfigError{Dependency: c.Dependency, Policy: c.Policy, Field: "Values", Want: "want a setting"}
	}
	var set []Setting
	spelled := map[string]string{}
	for _, field := range slices.Sorted(maps.Keys(c.Values)) {
		if other, twice := spelled[plainName(field)]; twice {
			return nil, &policy.ConfigError{Dependency: c.Dependency, Policy: c.Policy, Field: field, Want: "want it once: it is " + other}
		}
		spelled[plainName(field)] = field
		set = append(set, Setting{Name: nameByHand(c.Note), Path: join(join(c.Dependency, c.Policy), field), Text: c.Values[field]})
	}
	return set, nil
}

// within reports a path that leads to the settings of another policy than the change names:
// since names may have dots, a field of a's breaker could be one of a.breaker.
func (s *Settings) within(c policy.HandChange, set []Setting) error {
	longest := func(path string, names []string) (longest string) {
		for _, name := range names {
			if strings.HasPrefix(plainName(path), plainName(name)+".") && len(name) > len(longest) {
				longest = name
			}
		}
		return longest
	}
	var dependencies []string
	for _, d := range s.Dependencies {
		dependencies = append(dependencies, d.Name)
	}
	for _, one := range set {
		fault := &policy.ConfigError{Dependency: c.Dependency, Policy: c.Policy, Field: strings.TrimPrefix(one.Path, join(c.Dependency, c.Policy)+".")}
		dep := longest(one.Path, dependencies)
		if dep == "" {
			continue // which is reported
		}
		if plainName(dep) != plainName(c.Dependency) {
			fault.Want = "it would be a setting of the dependency " + dep
			return fault
		}
		var policies []string
		for _, p := range s.dependency(dep).Policies {
			policies = append(policies, p.Name)
		}
		name := longest(one.Path[len(dep)+1:], policies)
		if name != "" && plainName(name) != plainName(c.Policy) {
			fault.Want = "it would be a setting of the policy " + name
			return fault
		}
	}
	return nil
}

func nameByHand(note string) string {
	if note == "" {
		return "by hand"
	}
	return "by hand, " + note
}

func without(hand []byHand, path string) []byHand {
	return slices.DeleteFunc(slices.Clone(hand), func(h byHand) bool { return plainName(h.Path) == plainName(path) })
}

func (m *Manager) inForceLocked() *Settings { return m.versions[len(m.versions)-1].Settings }

func (m *Manager) versionLocked(number int) (*Version, error) {
	for _, v := range m.versions {
		if v.Number == number {
			return v, nil
		}
	}
	return nil, &policy.ConfigError{Policy: "config", Field: "version", Value: number, Want: "want one of the history"}
}

// dependency returns the dependency of a name, nil for none.
func (s *Settings) dependency(name string) *Dependency {
	i := slices.IndexFunc(s.Dependencies, func(d Dependency) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Dependencies[i]
}

// previewLocked says what it would do to put settings into effect. It requires that m.mu
// is held, as do all whose names end so.
func (m *Manager) previewLocked(contents []content, hand []byHand) (policy.ConfigEffect, error) {
	var e policy.ConfigEffect
	next, err := m.settingsLocked(contents, hand, nil)
	if err != nil {
		return e, err
	}
	now := m.inForceLocked()
	e.Differences = differences(now, next)
	for i := range next.Dependencies {
		d := &next.Dependencies[i]
		if old := now.dependency(d.Name); old == nil || !m.owned[d.Name] || len(differencesOf(old, d)) == 0 {
			continue
		}
		u, err := m.cfg.Registry.Prepare(d.Name, m.specs(d)...)
		if err != nil {
			return e, err
		}
		for _, r := range u.Replacements {
			if r.Change != policy.ChangeKept {
				e.Policies = append(e.Policies, r)
			}
		}
		u.Discard()
	}
	return e, nil
}

// differences lists what differs between two settings, with where it came from.
func differences(before, after *Settings) (list []policy.SettingDifference) {
	for _, d := range Diff(before, after) {
		list = append(list, policy.SettingDifference{Path: d.Path, Old: d.Old, New: d.New, Origin: before.origin(d.Path)})
	}
	return list
}

func differencesOf(before, after *Dependency) []Difference {
	return Diff(&Settings{Dependencies: []Dependency{*before}}, &Settings{Dependencies: []Dependency{*after}})
}

// origin says where the setting with a path was made; nothing for one that was not.
func (s *Settings) origin(path string) string {
	for _, d := range s.Dependencies {
		for _, p := range d.Policies {
			for _, v := range p.Values {
				if join(join(d.Name, p.Name), v.Path) == path {
					return v.Origin.String()
				}
			}
		}
	}
	return ""
}

// String says what became of the dependency; nothing when it was kept.
func (d DependencyReport) String() string {
	switch d.Change {
	case policy.ChangeKept:
		return ""
	case policy.ChangeResized:
		var parts []string
		for _, p := range d.Policies {
			parts = append(parts, p.String())
		}
		return d.Name + ": " + strings.Join(parts, ", ")
	default:
		return d.Name + ": " + d.Change.String()
	}
}

// setByHand makes settings by hand, all or none.
func (m *Manager) setByHand(ctx context.Context, set []Setting, length time.Duration, note string) (uint64, Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setByHandLocked(ctx, set, length, note)
}

func (m *Manager) setByHandLocked(ctx context.Context, set []Setting, length time.Duration, note string) (uint64, Report, error) {
	if m.closed {
		return 0, Report{}, errors.New("config: the manager is closed")
	}
	before := m.hand
	for _, s := range set {
		m.hand = without(m.hand, s.Path)
	}
	m.ids++
	var until time.Time
	if length > 0 {
		until = time.Now().Add(length)
	}
	for _, s := range set {
		m.hand = append(slices.Clip(m.hand), byHand{Setting: s, until: until, note: note, id: m.ids})
	}
	r, err := m.adjustLocked(ctx, "hand", note, m.versions[len(m.versions)-1].contents)
	if err != nil {
		m.hand = before
		return 0, r, err
	}
	m.expireLaterLocked(0)
	return m.ids, r, nil
}

func (m *Manager) rollback(ctx context.Context, number int, note string) (Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := m.versionLocked(number)
	if err != nil {
		return Report{}, err
	}
	before := m.hand
	stale := m.dropStaleLocked(v.contents)
	r, err := m.adjustLocked(ctx, fmt.Sprintf("rollback to %d", number), note, v.contents)
	if err != nil {
		m.hand = before
		return r, err
	}
	m.warnStale(ctx, stale)
	return r, nil
}

// warnStale says which settings made by hand have ended for want of a policy.
func (m *Manager) warnStale(ctx context.Context, stale []byHand) {
	for _, h := range stale {
		m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a setting made by hand has ended: what it is about is gone", slog.String("path", h.Path), slog.String("note", h.note))
	}
}

// dropStaleLocked forgets settings made by hand for what the sources no longer name: they
// must not keep a file from being loaded.
func (m *Manager) dropStaleLocked(contents []content) (stale []byHand) {
	s, err := settingsOf(contents, nil, m.budgetsLocked())
	if err != nil {
		return nil // which is reported
	}
	left := m.hand[:0:0]
	for _, h := range m.hand {
		if s.names(h.Path) {
			left = append(left, h)
		} else {
			stale = append(stale, h)
		}
	}
	m.hand = left
	return stale
}

// names reports whether a path leads into a policy of the settings.
func (s *Settings) names(path string) bool {
	for _, d := range s.Dependencies {
		for _, p := range d.Policies {
			if strings.HasPrefix(plainName(path), plainName(join(d.Name, p.Name))+".") {
				return true
			}
		}
	}
	return false
}
