// Package expvars publishes what the metrics of a registry say as an expvar, for those
// who have neither OpenTelemetry nor Prometheus.
//
// It is a package of its own because package expvar, once it is imported, adds
// /debug/vars to [net/http.DefaultServeMux]: whoever imports this one asks for that. The
// page then shows names of dependencies and policies and their figures to everybody who
// can reach that mux.
package expvars

import (
	"encoding/json"
	"expvar"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// publishing makes a look at the names and the addition to them one step.
var publishing sync.Mutex

// Publish publishes the values of reg ([otelx.Values]) under the name, such as
// "breakwater": a JSON object for each dependency, read anew each time; what is infinite is
// a string. An expvar stays until the process ends, so a name that is taken is an error.
func Publish(reg *policy.Registry, name string) error {
	publishing.Lock()
	defer publishing.Unlock()
	switch {
	case reg == nil:
		return &policy.ConfigError{Policy: "expvars", Field: "reg", Want: "want a registry"}
	case name == "":
		return &policy.ConfigError{Policy: "expvars", Field: "name", Want: "want a name"}
	case expvar.Get(name) != nil:
		return fmt.Errorf("expvars: there is a variable %q already", name)
	}
	expvar.Publish(name, variable{reg})
	return nil
}

type variable struct{ reg *policy.Registry }

// String implements [expvar.Var].
func (v variable) String() string {
	all := map[string]map[string]any{}
	for dependency, values := range otelx.Values(v.reg) {
		all[dependency] = make(map[string]any, len(values))
		for name, x := range values {
			if math.IsInf(x, 0) || math.IsNaN(x) { // which JSON does not know
				all[dependency][name] = strconv.FormatFloat(x, 'g', -1, 64)
				continue
			}
			all[dependency][name] = x
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "{}"
	}
	return string(text)
}
