package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// budgets are the kinds of budget of a retry policy. Which of them a mapping stands for
// is told by its settings, of which no two have one in common.
var budgets = []reflect.Type{
	reflect.TypeFor[retry.BudgetConfig](),
	reflect.TypeFor[retry.TokenBudgetConfig](),
	reflect.TypeFor[retry.InFlightBudgetConfig](),
}

// budgetOf returns the kind of budget that has most of some settings.
func budgetOf(settings []string) reflect.Type {
	best, most := budgets[0], 0
	for _, t := range budgets {
		known := fieldNames(t)
		n := 0
		for _, s := range settings {
			if slices.Contains(known, s) {
				n++
			}
		}
		if n > most {
			best, most = t, n
		}
	}
	return best
}

// budgetSettings lists the settings of all kinds of budget.
func budgetSettings() (names []string) {
	for _, t := range budgets {
		names = append(names, fieldNames(t)...)
	}
	return names
}

// budget sets the budget of a retry policy: a mapping of its settings, none, or the name of
// one that others share.
func (d *decoder) budget(v reflect.Value, n *node, path string) {
	if _, none := specialOf(n); none {
		v.Set(reflect.ValueOf(retry.NoBudget{}))
		return
	}
	if name, ok := n.scalar.(string); ok && n.kind == scalarNode {
		if b, ok := d.shared[name]; ok {
			if b != nil { // a fault of its own was reported
				v.Set(reflect.ValueOf(b))
			}
			return
		}
		known := slices.Sorted(maps.Keys(d.shared))
		d.unknown(n.origin, path, "budget", name, append(known, "none"))
		return
	}
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want the settings of a budget, the name of one of %s, or none", n.what(), keyBudgets)
		return
	}
	v.Set(reflect.ValueOf(d.budgetConfig(n, path)))
}

// budgetConfig makes the configuration of a budget.
func (d *decoder) budgetConfig(n *node, path string) retry.BudgetSource {
	cfg := reflect.New(budgetOf(n.keys)).Elem()
	d.fields(cfg, n, path, nil)
	source, _ := reflect.TypeAssert[retry.BudgetSource](cfg) // each kind is one
	return source
}

// SharedBudget is a budget of the section budgets, from which the retries and hedges of
// several dependencies are paid.
type SharedBudget struct {
	Name   string
	Origin Origin

	// Values are the settings that were made, in the order of their paths.
	Values []Value

	// Budget is the live budget. A [Manager] keeps it through reloads, with what it has
	// counted.
	Budget retry.LiveBudget

	source retry.BudgetSource // that it is made of, or will be when apply was called
	apply  func()
	change policy.Change
	why    string
}

// budgets makes the budgets of the section of that name. Those that are there from before go
// on under the new settings where they can.
func (d *decoder) budgets(n *node, before []SharedBudget) (list []SharedBudget) {
	d.shared = map[string]retry.BudgetSource{}
	for _, name := range n.names0() {
		path := join(keyBudgets, name)
		own := n.fields[name]
		if _, is := special[strings.ToLower(name)]; is {
			d.fail(n.names[name], path, "want another name: %s says that there is no budget", name)
			continue
		}
		d.shared[name] = nil
		if own.kind == scalarNode && own.scalar == nil {
			own = newMapping(own.origin)
		}
		if own.kind != mappingNode {
			d.fail(own.origin, path, "%s: want a mapping of settings, such as {Ratio: 10%%}", own.what())
			continue
		}
		faults := len(d.errs)
		b := SharedBudget{Name: name, Origin: n.names[name], Values: values(own, ""), source: d.budgetConfig(own, path), change: policy.ChangeAdded}
		unread := d.errs[faults:]
		if v, ok := b.source.(interface{ Validate() error }); ok {
			var errs []error
			for _, err := range flatten(v.Validate()) { // they are named as those of a retry
				if ce, ok := errors.AsType[*policy.ConfigError](err); ok {
					err = &policy.ConfigError{Policy: ce.Policy, Field: strings.TrimPrefix(ce.Field, "Budget."), Value: ce.Value, Want: ce.Want}
				}
				errs = append(errs, err)
			}
			d.locate(errors.Join(errs...), own, path, unread)
		}
		if len(d.errs) > faults {
			continue
		}
		b.goOn(before)
		if b.Budget == nil {
			b.Budget, _ = liveBudget(b.source) // valid
		}
		d.shared[name] = b.Budget
		list = append(list, b)
	}
	return list
}

// goOn takes over the live budget of the same name.
func (b *SharedBudget) goOn(before []SharedBudget) {
	i := slices.IndexFunc(before, func(old SharedBudget) bool { return old.Name == b.Name })
	if i < 0 {
		return
	}
	old := &before[i]
	if old.source == b.source {
		b.Budget, b.change = old.Budget, policy.ChangeKept
		return
	}
	apply, err := retry.ReloadBudget(old.Budget, b.source)
	if err != nil {
		b.change, b.why = policy.ChangeReset, err.Error()
		return
	}
	b.Budget, b.apply, b.change = old.Budget, apply, policy.ChangeResized
}

// liveBudget makes a budget of its configuration.
func liveBudget(source retry.BudgetSource) (retry.LiveBudget, error) {
	switch c := source.(type) {
	case retry.TokenBudgetConfig:
		return retry.NewTokenBudget(c)
	case retry.InFlightBudgetConfig:
		return retry.NewInFlightBudget(c)
	case retry.BudgetConfig:
		return retry.NewBudget(c)
	default:
		return nil, fmt.Errorf("config: %T is no budget", source)
	}
}

// budgetReport says what became of the budgets.
func budgetReport(before, now []SharedBudget) (list []policy.Replacement) {
	const kind = "budget"
	for _, b := range now {
		list = append(list, policy.Replacement{Policy: b.Name, Kind: kind, Change: b.change, Why: b.why})
	}
	for _, b := range before {
		if !slices.ContainsFunc(now, func(n SharedBudget) bool { return n.Name == b.Name }) {
			list = append(list, policy.Replacement{Policy: b.Name, Kind: kind, Change: policy.ChangeRemoved})
		}
	}
	slices.SortFunc(list, func(a, b policy.Replacement) int { return cmp.Compare(a.Policy, b.Policy) })
	return list
}
