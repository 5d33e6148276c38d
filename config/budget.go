package config

import (
	"reflect"
	"slices"

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

// budget sets the budget of a retry policy: a mapping of its settings, or none.
func (d *decoder) budget(v reflect.Value, n *node, path string) {
	if _, none := specialOf(n); none {
		v.Set(reflect.ValueOf(retry.NoBudget{}))
		return
	}
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want the settings of a budget, or none", n.what())
		return
	}
	cfg := reflect.New(budgetOf(n.keys)).Elem()
	d.fields(cfg, n, path, nil)
	v.Set(cfg)
}
