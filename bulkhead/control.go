package bulkhead

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Tunable = (*Permits)(nil)
	_ policy.Tunable = (*Workers)(nil)
)

// Settings implements [policy.Tunable]: the Limit can be changed.
func (p *Permits) Settings() []policy.Setting {
	return []policy.Setting{{
		Name: "Limit", Value: float64(p.counter.load().limit()),
		Least: float64(p.config().Reserve + 1), Most: maxLimit, Whole: true, Unit: "permits",
	}}
}

// Tune implements [policy.Tunable], by [Permits.SetLimit].
func (p *Permits) Tune(values map[string]float64) error {
	limit, err := whole(p.config().Name, "Limit", values)
	if err != nil || len(values) == 0 {
		return err
	}
	return p.SetLimit(limit)
}

// Settings implements [policy.Tunable]: the number of Workers can be changed.
func (w *Workers) Settings() []policy.Setting {
	return []policy.Setting{{
		Name: "Workers", Value: float64(w.limit.Load()),
		Least: float64(max(w.config().MinWorkers, 1)), Most: maxLimit, Whole: true, Unit: "workers",
	}}
}

// Tune implements [policy.Tunable], by [Workers.SetLimit].
func (w *Workers) Tune(values map[string]float64) error {
	workers, err := whole(w.config().Name, "Workers", values)
	if err != nil || len(values) == 0 {
		return err
	}
	return w.SetLimit(workers)
}

// whole returns the value of the only setting there is.
func whole(policyName, field string, values map[string]float64) (int, error) {
	var errs []error
	for name, v := range values {
		switch {
		case name != field:
			errs = append(errs, &policy.ConfigError{Policy: policyName, Field: name, Value: v, Want: fmt.Sprintf("want %s: nothing else can be changed while it runs", field)})
		case !(v >= 1 && v <= maxLimit && v == math.Trunc(v)): // written so that NaN fails
			errs = append(errs, &policy.ConfigError{Policy: policyName, Field: name, Value: v, Want: fmt.Sprintf("want a whole number from 1 to %d", maxLimit)})
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return int(values[field]), errors.Join(errs...)
}
