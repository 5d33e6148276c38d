package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// lanesKind is the kind of [Lanes], and its default instance name.
const lanesKind = "lanes"

// defaultFloor is the number of calls per second that a lane goes on with while it
// yields.
const defaultFloor = 0.5

// Lanes configures one quota for several kinds of traffic, each with a share of its own;
// it is handed to [policy.New] as it is, or to [NewLaneSet] for a live [LaneSet], whose
// lanes can stand in different pipelines. NewLaneSet copies the Lanes; later changes
// have no effect.
type Lanes struct {
	// Name is the instance name, the policy label everywhere. Empty means "lanes". A
	// lane that stands in a pipeline by itself has this name, a dot and its own.
	Name string

	// Lanes are the lanes, in order of precedence: where more than one could let a
	// call in at the same moment, the first does. At least one is needed.
	Lanes []LaneConfig

	// Total is a limit over all lanes together, of which only Limit, Window and
	// Approximate are used. The zero Total is none: all lanes together then let
	// through what each may. While a call waits for it, none of a later lane is let
	// in.
	Total SlidingWindow

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused, or
	// have waited, takes nothing and does not wait. It has no effect on the methods
	// of [LaneSet] and [Lane].
	Shadow bool
}

// LaneConfig configures one lane of [Lanes]: a token bucket, and its manners.
type LaneConfig struct {
	// Name is the name of the lane, unique among them: 1 to 128 bytes of printable
	// UTF-8, as it is a label. It has no default.
	Name string

	// Priority is the lowest priority of the calls that belong to this lane. A call
	// goes to the lane whose Priority is nearest below its own or equal to it, the
	// first of those if there are more, and if its priority is below all, to the
	// lane with the lowest. [WithLane] overrules that.
	Priority policy.Priority

	// Rate is the number of tokens per time that arrive, as in [TokenBucket]. It has
	// no default.
	Rate Rate

	// Burst is the number of tokens the lane can hold, as in [TokenBucket]. Zero
	// means what arrives in one second, rounded up.
	Burst int

	// Initial is the number of tokens at the start, as in [TokenBucket]. Zero means
	// Burst; [StartEmpty] means none.
	Initial int

	// MaxWait is the longest time that a call waits in this lane, up to a year. Zero
	// means that nobody waits: a call that finds too few tokens is refused at once.
	// One that would have to wait for longer, or until its deadline, even if nothing
	// else happened, is refused before it waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait in this lane at the same
	// time. Zero means as many as it lets in within MaxWait, at most 100. It needs
	// MaxWait.
	MaxWaiters int

	// YieldTo is the name of another lane that this one makes way for: while that
	// one holds fewer than YieldBelow tokens, nobody is let in here beyond Floor.
	// Empty means that it does not yield.
	YieldTo string

	// YieldBelow is the number of tokens below which the other lane is made way for,
	// from 1 to its Burst. It is required with YieldTo and not used without.
	YieldBelow int

	// Floor is the rate at which calls are let in while the lane yields, so that it
	// does not starve. Zero means 0.5 per second, or Rate if that is less; a rate
	// with negative Tokens means none at all. It needs YieldTo.
	Floor Rate

	// LendAbove lets other lanes that have too few tokens take from this one, as long
	// as this many are left, and nobody waits here; from 1 to Burst. Zero means that
	// it lends nothing.
	LendAbove int
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Lanes) Validate() error {
	f := faults{kind: lanesKind}
	if len(c.Lanes) == 0 {
		f.add("Lanes", nil, "want at least one lane")
	}
	for i := range c.Lanes {
		c.lane(&f, i)
	}
	if c.Total != (SlidingWindow{}) {
		own := faults{kind: lanesKind}
		own.sliding(c.Total.Limit, c.Total.Window, c.Total.Approximate)
		f.inside("Total", own.err())
		if c.Total.Name != "" || c.Total.MaxWait != 0 || c.Total.MaxWaiters != 0 || c.Total.Shadow {
			f.add("Total", nil, "want nothing but Limit, Window and Approximate: it is part of the lanes")
		}
	}
	return f.err()
}

// lane checks lane i.
func (c Lanes) lane(f *faults, i int) {
	l := c.Lanes[i]
	own := faults{kind: lanesKind}
	bucket := TokenBucket{Rate: l.Rate, Burst: l.Burst, Initial: l.Initial}
	bucketErr := bucket.Validate()
	own.inside("", bucketErr)
	switch {
	case l.Name == "":
		own.add("Name", nil, "want a name")
	case !isLabel(l.Name):
		own.add("Name", strconv.Quote(l.Name), labelWant)
	case slices.IndexFunc(c.Lanes, func(o LaneConfig) bool { return o.Name == l.Name }) < i:
		own.add("Name", l.Name, "want another name: an earlier lane has it")
	}
	if l.Priority < policy.PriorityLow || l.Priority > policy.PriorityCritical {
		own.add("Priority", l.Priority, "want %d to %d", policy.PriorityLow, policy.PriorityCritical)
	}
	own.wait(l.MaxWait, l.MaxWaiters)
	c.yield(&own, l)
	switch {
	case l.LendAbove < 0:
		own.add("LendAbove", l.LendAbove, "want at least 0 (0 lends nothing)")
	case bucketErr == nil && l.LendAbove > bucket.burst():
		own.add("LendAbove", l.LendAbove, "want at most Burst, which is %d", bucket.burst())
	}
	f.inside(fmt.Sprintf("Lanes[%d]", i), own.err())
}

// yield checks when l makes way.
func (c Lanes) yield(f *faults, l LaneConfig) {
	if l.YieldTo == "" {
		if l.YieldBelow != 0 {
			f.add("YieldBelow", l.YieldBelow, "want 0 without YieldTo")
		}
		if l.Floor != (Rate{}) {
			f.add("Floor", l.Floor, "want none without YieldTo")
		}
		return
	}
	i := slices.IndexFunc(c.Lanes, func(o LaneConfig) bool { return o.Name == l.YieldTo })
	if i < 0 || l.YieldTo == l.Name {
		f.add("YieldTo", l.YieldTo, "want the name of another lane")
		return
	}
	to := c.Lanes[i]
	bucket := TokenBucket{Rate: to.Rate, Burst: to.Burst}
	if l.YieldBelow < 1 || bucket.Validate() == nil && l.YieldBelow > bucket.burst() {
		f.add("YieldBelow", l.YieldBelow, "want 1 to the Burst of %s", to.Name)
	}
	if l.Floor != (Rate{}) && !(l.Floor.Tokens < 0) {
		f.rate("Floor", l.Floor)
		if l.Floor.unlimited() {
			f.add("Floor", l.Floor, "want a finite rate: an infinite floor never yields")
		}
	}
}

// inside adds the errors of a part, which is found in a field.
func (f *faults) inside(field string, err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if fault, ok := errors.AsType[*policy.ConfigError](err); ok {
			name := fault.Field
			if field != "" {
				name = field + "." + name
			}
			f.errs = append(f.errs, &policy.ConfigError{Policy: f.kind, Field: name, Value: fault.Value, Want: fault.Want})
		}
	}
}

// withDefaults returns the effective configuration. c must be valid.
func (c Lanes) withDefaults() Lanes {
	if c.Name == "" {
		c.Name = lanesKind
	}
	c.Lanes = slices.Clone(c.Lanes)
	for i := range c.Lanes {
		l := &c.Lanes[i]
		bucket := TokenBucket{Rate: l.Rate, Burst: l.Burst, Initial: l.Initial}.withDefaults()
		l.Burst, l.Initial = bucket.Burst, bucket.Initial
		l.MaxWaiters = waiters(l.MaxWaiters, l.MaxWait, l.Rate)
		if l.YieldTo != "" && l.Floor == (Rate{}) {
			if l.Floor = PerSecond(defaultFloor); l.Rate.perSecond() < defaultFloor {
				l.Floor = l.Rate
			}
		}
	}
	return c
}

// BuildPolicy implements [policy.Policy] with a new [LaneSet]: each pipeline that is
// given the Lanes has a quota of its own. To share one, give the pipelines the LaneSet,
// or its lanes.
func (c Lanes) BuildPolicy() (policy.Part, error) {
	s, err := NewLaneSet(c.Name, c)
	if err != nil {
		return policy.Part{Kind: lanesKind, Name: c.Name}, err
	}
	return s.BuildPolicy()
}

type laneKey struct{}

// WithLane returns a context whose calls use the named lane of every [LaneSet] that
// stands in their pipeline and has it, whatever their priority.
func WithLane(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, laneKey{}, name)
}
