package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// allKind is the kind of [All], and its default instance name.
const allKind = "all"

// All configures several limits of which a call must keep every one, such as one for
// each user, one for the route and one over all; it is handed to [policy.New] as it is,
// or to [NewAll] for a live [Bundle]. NewAll copies the All; later changes have no
// effect.
//
// Several limiters side by side in a pipeline do nearly the same. All is for where the
// limits are one thing: they are used by hand as one limiter, stand in one place of the
// pipeline, are waited for together, and a call that one of them refuses is not counted
// by the others even for a moment.
type All struct {
	// Name is the instance name, the policy label everywhere. Empty means "all".
	Name string

	// Limits are the limits: configurations or live limiters of this package, at
	// least one. Their names must differ, as a refusal says which of them it was.
	// None may have a MaxWait or be a Shadow: they decide as one. They are asked in
	// this order, so the one that refuses most often is best at the front.
	Limits []policy.Policy

	// MaxWait is the longest time that a call waits until every limit lets it in, up
	// to a year. Zero means that nobody waits: a call that finds too few tokens is
	// refused at once. One that would have to wait for longer, or until its
	// deadline, is refused before it waits, even if nobody else came.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused
	// takes nothing. It never waits. It has no effect on the methods of [Bundle].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join]. Faults of a limit are those of Limits[0] and so on.
func (c All) Validate() error {
	_, err := c.build()
	return err
}

// build returns the limits as parts, with their defaults.
func (c All) build() ([]policy.Part, error) {
	f := faults{kind: allKind}
	f.errs = append(f.errs, waitFaults(allKind, c.MaxWait, c.MaxWaiters)...)
	if len(c.Limits) == 0 {
		f.add("Limits", nil, "want at least one limit")
	}
	var parts []policy.Part
	for i, limit := range c.Limits {
		field := fmt.Sprintf("Limits[%d]", i)
		if limit == nil {
			f.add(field, nil, "want a limit")
			continue
		}
		part, err := limit.BuildPolicy()
		if err != nil {
			f.errs = append(f.errs, partFaults(allKind, field, err)...)
			continue
		}
		m, ok := part.Gate.(member)
		switch {
		case !ok:
			f.add(field, nil, "want a limiter of package ratelimit, and not one of kind %s", part.Kind)
			continue
		case !isLabel(m.title()):
			f.add(field+".Name", strconv.Quote(m.title()), labelWant)
		case slices.ContainsFunc(parts, func(p policy.Part) bool { return p.Gate.(member).title() == m.title() }):
			f.add(field+".Name", m.title(), "want another name: an earlier limit has it")
		}
		if part.Waits {
			f.add(field+".MaxWait", nil, "want 0: who waits, waits for all; set the MaxWait of All")
		}
		if part.Shadow {
			f.add(field+".Shadow", nil, "want false: the limits decide as one; set the Shadow of All")
		}
		parts = append(parts, part)
	}
	return parts, f.err()
}

// partFaults returns the faults of a part, as faults of a field.
func partFaults(kind, field string, err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{&policy.ConfigError{Policy: kind, Field: field, Want: err.Error()}}
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		if fault, ok := errors.AsType[*policy.ConfigError](err); ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: strings.Join([]string{field, fault.Field}, "."), Value: fault.Value, Want: fault.Want})
		} else {
			errs = append(errs, partFaults(kind, field, err)...)
		}
	}
	return errs
}

// withDefaults returns the effective configuration, which shares nothing with c. c must
// be valid, and parts its limits.
func (c All) withDefaults(parts []policy.Part) All {
	if c.Name == "" {
		c.Name = allKind
	}
	c.MaxWaiters = guests(c.MaxWait, c.MaxWaiters)
	c.Limits = make([]policy.Policy, len(parts))
	for i := range parts {
		c.Limits[i] = parts[i].Gate.(policy.Policy)
	}
	return c
}

// BuildPolicy implements [policy.Policy] with a new [Bundle]: each pipeline that is
// given the All has limits of its own, but for those that are live already. To share
// all, give both the Bundle.
func (c All) BuildPolicy() (policy.Part, error) {
	b, err := NewAll(c.Name, c)
	if err != nil {
		return policy.Part{Kind: allKind, Name: c.Name}, err
	}
	return b.BuildPolicy()
}
