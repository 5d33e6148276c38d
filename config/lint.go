package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says how much a finding matters.
type Severity uint8

// The severities, lowest first.
const (
	Note    Severity = iota // worth a thought
	Warning                 // likely to surprise
	Fault                   // has made incidents

	numSeverities
)

var severityNames = [numSeverities]string{"note", "warning", "error"}

// String returns "note", "warning" or "error".
func (s Severity) String() string {
	if s < numSeverities {
		return severityNames[s]
	}
	return "unknown"
}

// Rule is something that [Lint] looks for.
type Rule struct {
	ID       string // such as BW001
	Name     string // such as wait-without-bound
	Severity Severity
	Problem  string // what is wrong with it, in one sentence
	Fix      string // what to do, in one sentence
	Incident string // what it has led to; empty where no incident stands behind it

	find func(l *linter, d *dependency)
}

// Page returns the address of the rule's documentation, from the root of the project.
func (r *Rule) Page() string { return "docs/reference/lint.md#" + strings.ToLower(r.ID) }

// Finding is a place where a rule found something.
type Finding struct {
	Rule    *Rule
	Origin  Origin
	Path    string // of the policy or setting, such as inventory.pacer.MaxWait
	Message string // with the figures

	// Waived says that a comment in the file accepts it, for Reason.
	Waived bool
	Reason string
}

// String reads like breakwater.yaml:12:7: warning: inventory.pacer.MaxWait: ... [BW001].
func (f *Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s: %s [%s]", f.Origin, f.Rule.Severity, f.Path, f.Message, f.Rule.ID)
	if f.Waived {
		s += " (waived: " + f.Reason + ")"
	}
	return s
}

// Lint looks for settings that are valid and have led to incidents, or that cannot do
// what they are there for. The findings are in the order of their places; those that a
// comment waives are among them. A comment
//
//	# lint:allow BW021 the quota is ours alone
//
// waives a rule where it stands: for the policy or setting of its own line, or, on a line
// of its own, for the next. A waiver without a reason, of a rule that does not exist, or
// of nothing that was found is a finding itself.
func Lint(s *Settings) []*Finding {
	l := &linter{settings: s}
	for i := range s.Dependencies {
		d := newDependency(&s.Dependencies[i])
		for _, r := range Rules() {
			if r.find != nil {
				l.rule = r
				r.find(l, d)
			}
		}
	}
	l.waive(slices.Clone(s.waivers))
	slices.SortStableFunc(l.findings, func(a, b *Finding) int {
		x, y := a.Origin, b.Origin
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column), cmp.Compare(a.Rule.ID, b.Rule.ID))
	})
	return l.findings
}

// linter collects findings.
type linter struct {
	settings *Settings
	rule     *Rule
	findings []*Finding
}

// at reports something about a setting of a policy, or about the policy where the setting
// was not made.
func (l *linter) at(d *dependency, p *Policy, field, format string, args ...any) {
	f := &Finding{Rule: l.rule, Origin: p.Origin, Path: join(d.Name, p.Name), Message: fmt.Sprintf(format, args...)}
	n := p.node.at(field)
	if field != "" {
		f.Path = join(f.Path, field)
	}
	if n != nil {
		f.Origin = n.origin
	}
	l.findings = append(l.findings, f)
}

// fact reports something about a fact.
func (l *linter) fact(d *dependency, field, format string, args ...any) {
	f := &Finding{Rule: l.rule, Origin: d.Origin, Path: join(join(d.Name, keyFacts), field), Message: fmt.Sprintf(format, args...)}
	if n := d.facts.field(field); n != nil {
		f.Origin = n.origin
	}
	l.findings = append(l.findings, f)
}

// waive marks what comments accept, and reports comments that do not.
func (l *linter) waive(list []waiver) {
	for i := range list {
		w := &list[i]
		_, known := ruleOf(w.rule)
		for _, f := range l.findings {
			if known && f.Rule.ID == w.rule && w.covers(l.settings, f) && w.reason != "" {
				f.Waived, f.Reason, w.used = true, w.reason, true
			}
		}
		var problem string
		switch {
		case !known:
			ids := make([]string, 0, len(Rules()))
			for _, r := range Rules() {
				ids = append(ids, r.ID)
			}
			problem = unknown("rule", w.rule, ids)
		case w.reason == "":
			problem = fmt.Sprintf("the waiver of %s gives no reason: say why it may stand", w.rule)
		case !w.used:
			problem = w.rule + " is waived here and was not found: remove the comment"
		default:
			continue
		}
		rule, _ := ruleOf("BW000")
		l.findings = append(l.findings, &Finding{Rule: rule, Origin: w.origin, Path: w.rule, Message: problem})
	}
}

// covers reports whether a finding is about what the waiver stands beside: the line of
// the finding itself, or that of its policy.
func (w *waiver) covers(s *Settings, f *Finding) bool {
	if f.Origin.Source == w.source && f.Origin.Line == w.line {
		return true
	}
	for i := range s.Dependencies {
		for _, p := range s.Dependencies[i].Policies {
			path := join(s.Dependencies[i].Name, p.Name)
			if p.Origin.Source == w.source && p.Origin.Line == w.line && (f.Path == path || strings.HasPrefix(f.Path, path+".")) {
				return true
			}
		}
	}
	return false
}

func ruleOf(id string) (*Rule, bool) {
	for _, r := range Rules() {
		if r.ID == id {
			return r, true
		}
	}
	return nil, false
}
