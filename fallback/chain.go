package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/breakwater-go/breakwater/policy"
)

// Chain returns a fallback that stands for several: the first of them that handles the
// failure and succeeds answers. A pipeline or typed handle asks them in its place, so
// each keeps its own gate and its own counters, under its own name; those that have none
// are called "fallback-1" and so on, by their place in the chain.
//
// Chains nest, and are then one. The list may be empty: nothing answers then.
func Chain[T any](fallbacks ...policy.Fallback[T]) policy.Fallback[T] {
	var list []policy.Fallback[T]
	for _, fb := range fallbacks {
		if c, ok := fb.(chain[T]); ok {
			list = append(list, c.list...) // one of its own names would be that of another
		} else {
			list = append(list, fb)
		}
	}
	return chain[T]{list}
}

type chain[T any] struct{ list []policy.Fallback[T] }

// Fallbacks returns the fallbacks in order, each with a name.
func (c chain[T]) Fallbacks() []policy.Fallback[T] {
	list := make([]policy.Fallback[T], len(c.list))
	for i, fb := range c.list {
		list[i] = fb
		if fb == nil || isNilPointer(fb) {
			continue // whoever is handed the chain says so
		}
		if part, _ := fb.BuildPolicy(); part.Name == "" {
			list[i] = named[T]{fb, fmt.Sprintf("%s-%d", kind, i+1)}
		}
	}
	return list
}

// Policies returns them as policies.
func (c chain[T]) Policies() []policy.Policy {
	list := make([]policy.Policy, 0, len(c.list))
	for _, fb := range c.Fallbacks() {
		list = append(list, fb)
	}
	return list
}

// BuildPolicy returns the part of a chain that is asked as one, which no pipeline does.
func (c chain[T]) BuildPolicy() (policy.Part, error) {
	var errs []error
	for _, fb := range c.list {
		if fb == nil || isNilPointer(fb) {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: "fallbacks", Want: "a nil fallback is in the chain"})
			continue
		}
		_, err := fb.BuildPolicy()
		errs = append(errs, err)
	}
	return policy.Part{Kind: kind, Fallback: untypedChain[T]{c}}, errors.Join(errs...)
}

// Handles reports whether one of the fallbacks answers for f.
func (c chain[T]) Handles(f policy.FailedCall) bool {
	return slices.ContainsFunc(c.list, func(fb policy.Fallback[T]) bool { return fb.Handles(f) })
}

// Answer returns the answer of the first that handles f and succeeds, or the errors of
// all that failed.
func (c chain[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[T], error) {
	var errs []error
	for _, fb := range c.list {
		if !fb.Handles(f) {
			continue
		}
		a, err := fb.Answer(ctx, f)
		if err == nil {
			return a, nil
		}
		errs = append(errs, err)
	}
	return policy.Answer[T]{}, errors.Join(errs...)
}

type untypedChain[T any] struct{ chain[T] }

func (u untypedChain[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[any], error) {
	a, err := u.chain.Answer(ctx, f)
	return policy.Answer[any]{Value: a.Value, Age: a.Age}, err
}

// named gives a name to a fallback that has none.
type named[T any] struct {
	policy.Fallback[T]

	name string
}

func (n named[T]) BuildPolicy() (policy.Part, error) {
	part, err := n.Fallback.BuildPolicy()
	part.Name = n.name
	return part, err
}
