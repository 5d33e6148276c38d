package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// ManagerConfig configures a [Manager].
type ManagerConfig struct {
	// Registry is where the pipelines are. It is required; pipelines that are in it
	// already and that no source names are left alone.
	Registry *policy.Registry

	// Sources are where the settings come from, see [Load].
	Sources []Source

	// Code returns policies of a dependency that are no data and that the file does not
	// refer to by a name ([Program]): observers, a gate of one's own. It is called for each dependency at each load, and
	// should return the same live objects each time, since what it returns for the
	// first time starts afresh. Nil means none.
	Code func(dependency string) []policy.Policy

	// Logger gets one line for each change that took effect, each that was refused,
	// and each finding of [Lint] when it is new. Nil means [slog.Default].
	Logger *slog.Logger

	// History is how many versions are kept for [Manager.Rollback]. Zero means 10.
	History int

	// Signals are signals at which [Manager.Watch] reloads, such as syscall.SIGHUP.
	// Nil means none.
	Signals []os.Signal

	// Debounce is how long a source must have been quiet before Watch reads it, and the
	// time between two readings that must say the same before it reloads: files are often
	// written in steps. Zero means 200 ms.
	Debounce time.Duration
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c ManagerConfig) Validate() error {
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: "config", Field: field, Value: value, Want: want})
	}
	if c.Registry == nil {
		fail("Registry", nil, "want the registry of the pipelines")
	}
	if len(c.Sources) == 0 {
		fail("Sources", nil, "want at least one, such as config.File(\"breakwater.yaml\")")
	}
	if c.History < 0 {
		fail("History", c.History, "want at least 0 (0 means 10)")
	}
	if c.Debounce < 0 {
		fail("Debounce", c.Debounce, "want at least 0 (0 means 200ms)")
	}
	return errors.Join(errs...)
}

// Manager keeps the pipelines of a registry as the sources say, while calls go on.
//
// A reload looks at everything before it changes anything: sources that are wrong change
// nothing, and the error says what is wrong. Policies whose settings are as they were are
// kept; others go on with what they know where they can ([policy.Reloader]). A dependency
// that is no longer named is removed and its pipeline closed: who still has that pipeline
// is refused. One that comes back starts afresh, under a new pipeline.
//
// All methods are safe for concurrent use.
type Manager struct {
	cfg ManagerConfig

	mu       sync.Mutex
	versions []*Version // the last is in force
	number   int
	owned    map[string]bool // dependencies that the sources named
	hand     []byHand
	known    map[string]bool    // findings that were logged
	expiry   *time.Timer        // of what was set by hand; nil while nothing was for a time
	gone     []*policy.Pipeline // that were removed, and are to be closed
	ids      uint64             // of changes by hand
	closed   bool
	fault    error // of what was read last, until it is read without one
	faultAt  time.Time

	// reading has room for one: what was read first must not take effect last.
	reading chan struct{}
}

// byHand is a setting that somebody made at run time.
type byHand struct {
	Setting

	until time.Time // zero for no end
	note  string    // who and why
	id    uint64    // of the change that it belongs to
}

// Version is a configuration that took effect.
type Version struct {
	Number   int // from 1
	Time     time.Time
	Why      string // load, reload, hand, expired or rollback to n
	Note     string // who and why, of what was done by hand
	Settings *Settings
	Report   Report

	contents []content
}

// Report says what a reload did.
type Report struct {
	// Dependencies are those that there are now or were before, in the order of their
	// names.
	Dependencies []DependencyReport

	// Budgets are the shared budgets, in the order of their names.
	Budgets []policy.Replacement
}

// DependencyReport says what a reload did with a dependency.
type DependencyReport struct {
	Name     string
	Change   policy.Change        // kept, resized, added or removed
	Policies []policy.Replacement // of one that was there before and still is
}

// Changed reports whether anything is different from before.
func (r Report) Changed() bool {
	return slices.ContainsFunc(r.Dependencies, func(d DependencyReport) bool { return d.Change != policy.ChangeKept }) ||
		slices.ContainsFunc(r.Budgets, func(b policy.Replacement) bool { return b.Change != policy.ChangeKept })
}

// String has a line for each budget and dependency that has changed, with what became of
// its policies.
func (r Report) String() string {
	var lines []string
	for _, b := range r.Budgets {
		if b.Change != policy.ChangeKept {
			lines = append(lines, "budget "+b.String())
		}
	}
	for _, d := range r.Dependencies {
		if line := d.String(); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "nothing has changed"
	}
	return strings.Join(lines, "\n")
}

// NewManager loads the sources and makes the pipelines. On an error it has made none.
func NewManager(ctx context.Context, cfg ManagerConfig) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Sources = slices.Clone(cfg.Sources)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.History = cmp.Or(cfg.History, 10)
	cfg.Debounce = cmp.Or(cfg.Debounce, 200*time.Millisecond)
	m := &Manager{cfg: cfg, owned: map[string]bool{}, known: map[string]bool{}, reading: make(chan struct{}, 1)}
	if _, err := m.reload(ctx, "load"); err != nil {
		return nil, err
	}
	return m, nil
}

// Reload reads the sources again and puts into effect what they say. On an error nothing
// has changed; it is logged, and the registry is told ([policy.Registry.ConfigRefused]).
// Reload returns when the pipelines that it has removed are closed, or ctx has ended: nobody
// else waits for that.
func (m *Manager) Reload(ctx context.Context) (Report, error) {
	r, err := m.reload(ctx, "reload")
	m.closeGone(ctx)
	return r, err
}

func (m *Manager) reload(ctx context.Context, why string) (Report, error) {
	if err := m.readAlone(ctx); err != nil {
		return Report{}, err
	}
	defer m.doneReading()
	contents, errs := read(ctx, m.cfg.Sources)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loadLocked(ctx, why, contents, errs)
}

// readAlone waits until nobody else reads the sources. doneReading must follow.
func (m *Manager) readAlone(ctx context.Context) error {
	select {
	case m.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("config: the sources are being read by another: %w", context.Cause(ctx))
	}
}

func (m *Manager) doneReading() { <-m.reading }

// closeGone closes the pipelines that were removed, all at once, and waits for that until
// ctx ends. It is called without m.mu, for functions on a pool can take any time.
func (m *Manager) closeGone(ctx context.Context) {
	m.mu.Lock()
	gone := m.gone
	m.gone = nil
	m.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range gone {
		wg.Go(func() {
			if err := p.Close(ctx); err != nil {
				m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a removed pipeline did not close in time", slog.String("dependency", p.Name()), slog.Any("error", err))
			}
		})
	}
	wg.Wait()
}

// Set makes a setting by hand, such as inventory.breaker.OpenFor to 30s. It wins over all
// sources, survives reloads, and ends after the given time, or with Unset where that is not
// positive. Note says who and why.
func (m *Manager) Set(ctx context.Context, path, value string, length time.Duration, note string) (Report, error) {
	_, r, err := m.setByHand(ctx, []Setting{{Name: nameByHand(note), Path: path, Text: value}}, length, note)
	return r, err
}

// Unset takes back what Set has done.
func (m *Manager) Unset(ctx context.Context, path string) (Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.hand
	m.hand = without(m.hand, path)
	r, err := m.adjustLocked(ctx, "hand", "", m.versions[len(m.versions)-1].contents)
	if err != nil {
		m.hand = before
	}
	return r, err
}

// History returns the versions that are kept, the one in force last.
func (m *Manager) History() []*Version {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.versions)
}

// Settings returns the settings in force.
func (m *Manager) Settings() *Settings {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.versions[len(m.versions)-1].Settings
}

// Rollback puts a version of the history into effect again, as a new version, whatever the
// sources say now. The next reload reads them again. Settings made by hand stay, but
// for those of a policy that the version does not have.
func (m *Manager) Rollback(ctx context.Context, number int) (Report, error) {
	r, err := m.rollback(ctx, number, "")
	m.closeGone(ctx)
	return r, err
}

// Close ends the expiry of settings made by hand; they stay as they are. The pipelines
// are the registry's to close.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.expiry != nil {
		m.expiry.Stop()
	}
}

// settingsLocked makes settings of what was read and of what was set by hand.
func (m *Manager) settingsLocked(contents []content, hand []byHand, errs []error) (*Settings, error) {
	var set []Setting
	for _, h := range hand {
		set = append(set, h.Setting)
	}
	return settingsOf(append(slices.Clip(contents), content{Content{Set: set}, LayerHand}), errs, m.budgetsLocked())
}

// loadLocked puts what was read into effect, all of it or none.
func (m *Manager) loadLocked(ctx context.Context, why string, contents []content, errs []error) (Report, error) {
	before := m.hand
	stale := m.dropStaleLocked(contents)
	r, err := m.applyLocked(ctx, why, "", contents, errs)
	m.fault, m.faultAt = err, time.Time{}
	if err != nil {
		m.hand, m.faultAt = before, time.Now()
		m.cfg.Registry.ConfigRefused(fmt.Sprintf("%d (%s)", m.number+1, why), err)
		return r, err
	}
	m.warnStale(ctx, stale)
	m.cfg.Registry.ConfigApplied(fmt.Sprintf("%d (%s)", m.number, why))
	return r, nil
}

// adjustLocked puts settings into effect of which only those made by hand are new, or which
// were in effect before. What is wrong with the sources stays so.
func (m *Manager) adjustLocked(ctx context.Context, why, note string, contents []content) (Report, error) {
	r, err := m.applyLocked(ctx, why, note, contents, nil)
	if err == nil {
		m.cfg.Registry.ConfigAdjusted(fmt.Sprintf("%d (%s)", m.number, why))
	}
	return r, err
}

func (m *Manager) applyLocked(ctx context.Context, why, note string, contents []content, errs []error) (Report, error) {
	settings, err := m.settingsLocked(contents, m.hand, errs)
	var report Report
	if err == nil {
		report, err = m.swapLocked(ctx, settings)
	}
	if err != nil {
		m.cfg.Logger.LogAttrs(ctx, slog.LevelError, "configuration refused, nothing has changed", slog.String("why", why), slog.Any("error", err))
		return Report{}, err
	}
	m.number++
	m.versions = append(m.versions, &Version{Number: m.number, Time: time.Now(), Why: why, Note: note, Settings: settings, Report: report, contents: contents})
	if over := len(m.versions) - m.cfg.History; over > 0 {
		m.versions = slices.Delete(m.versions, 0, over)
	}
	m.logLocked(ctx, why, settings, report)
	return report, nil
}

// budgetsLocked returns the shared budgets in force.
func (m *Manager) budgetsLocked() []SharedBudget {
	if len(m.versions) == 0 {
		return nil
	}
	return m.versions[len(m.versions)-1].Settings.Budgets
}

func (m *Manager) logLocked(ctx context.Context, why string, settings *Settings, report Report) {
	m.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "configuration in force",
		slog.Int("version", m.number), slog.String("why", why), slog.Int("dependencies", len(settings.Dependencies)), slog.String("changes", report.String()))
	if m.number == 1 {
		for _, b := range settings.Budgets {
			for _, v := range b.Values {
				m.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "setting", slog.String("path", join(join(keyBudgets, b.Name), v.Path)),
					slog.String("value", v.Text), slog.String("layer", v.Origin.Layer.String()), slog.String("origin", v.Origin.String()))
			}
		}
		for _, d := range settings.Dependencies {
			for _, p := range d.Policies {
				for _, v := range p.Values {
					m.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "setting", slog.String("path", join(join(d.Name, p.Name), v.Path)),
						slog.String("value", v.Text), slog.String("layer", v.Origin.Layer.String()), slog.String("origin", v.Origin.String()))
				}
			}
		}
	}
	for _, f := range Lint(settings) {
		if key := f.Rule.ID + f.Path + f.Message; !f.Waived && !m.known[key] {
			m.known[key] = true
			m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "lint", slog.String("rule", f.Rule.ID), slog.String("path", f.Path),
				slog.String("origin", f.Origin.String()), slog.String("message", f.Message), slog.String("fix", f.Rule.Fix))
		}
	}
}

// swapLocked makes the pipelines what the settings say.
func (m *Manager) swapLocked(ctx context.Context, settings *Settings) (Report, error) {
	reg := m.cfg.Registry
	var report Report
	var updates []prepared
	var made []string
	var errs []error
	named := map[string]bool{}
	for _, d := range settings.Dependencies {
		named[d.Name] = true
		specs := m.specs(&d)
		if _, ok := reg.Get(d.Name); ok && m.owned[d.Name] {
			u, err := reg.Prepare(d.Name, specs...)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			r := DependencyReport{Name: d.Name, Policies: u.Replacements}
			if slices.ContainsFunc(u.Replacements, func(p policy.Replacement) bool { return p.Change != policy.ChangeKept }) {
				r.Change = policy.ChangeResized
				updates = append(updates, prepared{u, d.Name, specs})
			} else {
				u.Discard()
			}
			report.Dependencies = append(report.Dependencies, r)
			continue
		}
		if _, err := reg.New(d.Name, specs...); err != nil {
			errs = append(errs, err)
			continue
		}
		made = append(made, d.Name)
		report.Dependencies = append(report.Dependencies, DependencyReport{Name: d.Name, Change: policy.ChangeAdded})
	}
	if len(errs) > 0 {
		for _, u := range updates {
			u.update.Discard()
		}
		for _, name := range made { // nobody has got hold of them
			errs = append(errs, reg.Remove(ctx, name))
		}
		return Report{}, errors.Join(errs...)
	}
	report.Budgets = budgetReport(m.budgetsLocked(), settings.Budgets)
	for _, b := range settings.Budgets {
		if b.apply != nil {
			b.apply()
		}
	}
	for _, u := range updates {
		if err := m.insist(u); err != nil {
			m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a pipeline was not changed", slog.Any("error", err))
		}
	}
	for name := range m.owned {
		if !named[name] {
			report.Dependencies = append(report.Dependencies, DependencyReport{Name: name, Change: policy.ChangeRemoved})
			if p := reg.Unregister(name); p != nil {
				m.gone = append(m.gone, p)
			}
		}
	}
	m.owned = named
	slices.SortFunc(report.Dependencies, func(a, b DependencyReport) int { return cmp.Compare(a.Name, b.Name) })
	return report, nil
}

// specs lists what a dependency is made of: its settings, and what is code.
func (m *Manager) specs(d *Dependency) []policy.Policy {
	specs := d.Specs()
	if m.cfg.Code != nil {
		specs = append(specs, m.cfg.Code(d.Name)...)
	}
	return specs
}

// prepared is an update with what it was prepared from.
type prepared struct {
	update *policy.Update
	name   string
	specs  []policy.Policy
}

// insist applies an update, again if the pipeline was changed by hand since it was
// prepared.
func (m *Manager) insist(p prepared) error {
	for {
		err := p.update.Apply()
		if !errors.Is(err, policy.ErrStale) {
			return err
		}
		if p.update, err = m.cfg.Registry.Prepare(p.name, p.specs...); err != nil {
			return err
		}
	}
}

// Difference is a setting that two versions do not have in common.
type Difference struct {
	Path     string // such as inventory.breaker.OpenFor
	Old, New string // as they were written; empty where it was not made
}

// Diff lists the settings in which two versions differ, in the order of their paths.
func Diff(before, after *Settings) []Difference {
	was, is := settingsByPath(before), settingsByPath(after)
	var list []Difference
	for path, v := range is {
		if was[path] != v {
			list = append(list, Difference{path, was[path], v})
		}
	}
	for path, v := range was {
		if _, ok := is[path]; !ok {
			list = append(list, Difference{path, v, ""})
		}
	}
	slices.SortFunc(list, func(a, b Difference) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// settingsByPath lists all settings by their paths.
func settingsByPath(s *Settings) map[string]string {
	all := map[string]string{}
	for _, b := range s.Budgets {
		path := join(keyBudgets, b.Name)
		all[path] = "budget"
		for _, v := range b.Values {
			all[join(path, v.Path)] = v.Text
		}
	}
	for _, d := range s.Dependencies {
		for _, p := range d.Policies {
			path := join(d.Name, p.Name)
			all[path] = p.Kind
			for _, v := range p.Values {
				all[join(path, v.Path)] = v.Text
			}
		}
	}
	return all
}
