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
// the names that metrics and errors have for them. A [Program] adds others.
var kinds = []kindOf{
	kind[policy.Timeouts]("timeout"),
	kind[retry.Config]("retry"),
	kind[retry.Hedge]("hedge"),
	kind[ratelimit.TokenBucket]("ratelimit"),
	kind[ratelimit.Pacer]("pacer"),
	kind[ratelimit.FixedWindow]("fixed_window"),
	kind[ratelimit.SlidingWindow]("sliding_window"),
	kind[ratelimit.WarmUp]("warm_up"),
	kind[ratelimit.Lanes]("lanes"),
	kind[ratelimit.Keyed]("keyed"),
	kind[ratelimit.All]("all"),
	kind[ratelimit.Feedback]("feedback"),
	kind[ratelimit.System]("system"),
	kind[bulkhead.Semaphore]("bulkhead"),
	kind[bulkhead.Pool]("pool"),
	kind[bulkhead.Adaptive]("adaptive"),
	kind[breaker.Config]("breaker"),
	kind[breaker.Keyed]("keyed_breaker"),
	kind[breaker.Throttle]("throttle"),
}

func kind[P policy.Policy](name string) kindOf {
	return kindOf{name: name, spec: reflect.TypeFor[P]()}
}

type kindOf struct {
	name  string
	spec  reflect.Type
	added *Kind // of another package; nil for those of this one
}

func kindNames(list []kindOf) (names []string) {
	for _, k := range list {
		names = append(names, k.name)
	}
	return names
}
