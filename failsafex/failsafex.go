// Package failsafex lets breakwater and failsafe-go use each other's policies: a
// gate of breakwater as a failsafe-go policy, and any failsafe-go policy inside a
// pipeline.
//
// It is the only package of the core whose signatures name failsafe-go, whose minor
// versions may break: import it only where the two meet.
package failsafex

import (
	"reflect"
	"strings"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"

	"github.com/breakwater-go/breakwater/internal/engine"
	"github.com/breakwater-go/breakwater/policy"
)

// Gates makes gates (rate limit, bulkhead, breaker) a failsafe-go policy for results
// of type R. They are entered before and left after each execution of whatever is
// inside; a refusal is a [*policy.RejectedError] whose Dependency is name, and the
// execution's error is classified as in a pipeline. A panic inside gives back every
// permit and counts as a failure.
//
// A failsafe-go policy cannot give the function another context, so timeouts have
// no effect here; retry and fallback have none either. All three are refused as
// config errors.
func Gates[R any](name string, gates ...policy.Policy) (failsafe.Policy[R], error) {
	// What is in Ordered must be looked at too, so it is taken apart and put together
	// again, as New keeps the order of everything once a part of it is ordered.
	ordered := false
	var list []policy.Policy
	for _, g := range gates {
		if o, ok := g.(interface{ Policies() []policy.Policy }); ok {
			ordered = true
			list = append(list, only(o.Policies())...)
			continue
		}
		list = append(list, only([]policy.Policy{g})...)
	}
	if ordered {
		list = []policy.Policy{policy.Ordered(list...)}
	}
	p, err := policy.New(name, list...)
	if err != nil {
		return nil, err
	}
	return &gatePolicy[R]{p: p}, nil
}

// only makes config errors of the policies that cannot work around a function which
// failsafe-go runs.
func only(policies []policy.Policy) []policy.Policy {
	list := make([]policy.Policy, len(policies))
	for i, p := range policies {
		list[i] = p
		if v := reflect.ValueOf(p); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) { // New reports the others
			list[i] = gate{p}
		}
	}
	return list
}

// gate is a policy that must be one which works here. It is built only once.
type gate struct{ policy.Policy }

// BuildPolicy implements [policy.Policy].
func (g gate) BuildPolicy() (policy.Part, error) {
	part, err := g.Policy.BuildPolicy()
	if err == nil && part.Gate == nil && part.Observer == nil && part.Classify == nil {
		err = &policy.ConfigError{
			Policy: part.Kind,
			Want:   "failsafe-go runs the function: only gates, observers and classifiers work here",
		}
	}
	return part, err
}

// gatePolicy implements [failsafe.Policy].
type gatePolicy[R any] struct {
	p *policy.Pipeline
}

// ToExecutor implements [failsafe.Policy].
func (g *gatePolicy[R]) ToExecutor(R) any { return g }

// Apply is the part of failsafe-go's policy.Executor that its executor calls.
func (g *gatePolicy[R]) Apply(inner func(failsafe.Execution[R]) *common.PolicyResult[R]) func(failsafe.Execution[R]) *common.PolicyResult[R] {
	return func(exec failsafe.Execution[R]) *common.PolicyResult[R] {
		h, err := g.p.Enter(engine.Context(exec))
		if err != nil {
			return &common.PolicyResult[R]{Error: err, Done: true}
		}
		defer h.Release() // a panic counts as a failure
		result := inner(exec)
		h.Leave(result.Error)
		return result
	}
}

// Policy puts a failsafe-go policy into a pipeline, inside the retry policy and
// around the gates; several keep their order, outermost first. They see the values
// of the call and its own errors, refusals included, and may replace either.
//
// What such a policy refuses with is its own error, not a [*policy.RejectedError]. A
// timeout is classified as one, and does not end the context of an attempt that is held
// beyond its function, such as that of a response.
//
// Every attempt of such a pipeline runs through a failsafe-go executor that is put
// together for the call, the first one too: it costs what failsafe-go costs, about
// 20 allocations a call. A hedge policy is refused, because it runs attempts of one
// call at the same time without the pipeline's knowledge; retry.Hedge is the policy for
// that.
func Policy(name string, p failsafe.Policy[any]) policy.Policy { return foreign{name: name, p: p} }

type foreign struct {
	name string
	p    failsafe.Policy[any]
}

// BuildPolicy implements [policy.Policy].
func (f foreign) BuildPolicy() (policy.Part, error) {
	part := policy.Part{Kind: "failsafe", Name: f.name}
	if f.p == nil {
		return part, &policy.ConfigError{Policy: "failsafe", Field: "Policy", Want: "is nil"}
	}
	if t := reflect.TypeOf(f.p); t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/failsafe-go/hedgepolicy") {
		return part, &policy.ConfigError{
			Policy: "failsafe", Field: "Policy",
			Want: "a hedge policy runs attempts of one call at the same time, of which the pipeline would not know; use retry.Hedge, or failsafe.With(hedge, gates) with Gates",
		}
	}
	part.Foreign = &engine.Foreign{Policy: f.p}
	return part, nil
}
