package config

import (
	"reflect"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// kinds are the policies that can be written down: those whose settings are data, under
// the names that metrics and errors have for them. Fallbacks and classifiers are code,
// and join them where the pipelines are made.
var kinds = []kindOf{
	{"timeout", reflect.TypeFor[policy.Timeouts]()},
	{"retry", reflect.TypeFor[retry.Config]()},
	{"hedge", reflect.TypeFor[retry.Hedge]()},
	{"ratelimit", reflect.TypeFor[ratelimit.TokenBucket]()},
	{"pacer", reflect.TypeFor[ratelimit.Pacer]()},
	{"fixed_window", reflect.TypeFor[ratelimit.FixedWindow]()},
	{"sliding_window", reflect.TypeFor[ratelimit.SlidingWindow]()},
	{"warm_up", reflect.TypeFor[ratelimit.WarmUp]()},
	{"lanes", reflect.TypeFor[ratelimit.Lanes]()},
	{"keyed", reflect.TypeFor[ratelimit.Keyed]()},
	{"all", reflect.TypeFor[ratelimit.All]()},
	{"feedback", reflect.TypeFor[ratelimit.Feedback]()},
	{"system", reflect.TypeFor[ratelimit.System]()},
	{"bulkhead", reflect.TypeFor[bulkhead.Semaphore]()},
	{"pool", reflect.TypeFor[bulkhead.Pool]()},
	{"adaptive", reflect.TypeFor[bulkhead.Adaptive]()},
	{"breaker", reflect.TypeFor[breaker.Config]()},
	{"keyed_breaker", reflect.TypeFor[breaker.Keyed]()},
	{"throttle", reflect.TypeFor[breaker.Throttle]()},
}

type kindOf struct {
	name string
	spec reflect.Type
}

func kindNamed(name string) (kindOf, bool) {
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return kindOf{}, false
}

// kindNames lists the kinds in the order of a pipeline, outermost first.
func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}
