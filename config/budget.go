package config

import (
	"reflect"

	"github.com/breakwater-go/breakwater/retry"
)

// budget sets the budget of a retry policy: a mapping of its settings, or none.
func (d *decoder) budget(v reflect.Value, n *node, path string) {
	if _, none := specialOf(n); none {
		v.Set(reflect.ValueOf(retry.NoBudget{}))
		return
	}
	cfg := reflect.New(reflect.TypeFor[retry.BudgetConfig]()).Elem()
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want the settings of a budget, or none", n.what())
		return
	}
	d.fields(cfg, n, path, nil)
	v.Set(cfg)
}
