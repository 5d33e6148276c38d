package policy

import (
	"context"
	"time"
)

// Quota is what a rate limit allows a caller, and what of it is left.
type Quota struct {
	// Policy is the instance name of the policy, with the name of a lane or a limit behind
	// a dot where it has several.
	Policy string

	// Limit is the number of tokens in a Window, above 0.
	Limit  int
	Window time.Duration

	// Remaining is the number of tokens that could be taken now, from 0 to Limit.
	Remaining int

	// Reset is the time until as many as Limit are there again if nobody takes any; 0
	// where they are.
	Reset time.Duration
}

// A Quoter is a gate that can say what it leaves to its callers.
type Quoter interface {
	// Quotas appends what the gate leaves to a call to list: for each of its limits one,
	// with the name of the limit in Policy where it has several. A limit that is none (an
	// infinite rate) is left out. It takes nothing and costs about as much as Enter does.
	Quotas(ctx context.Context, now time.Time, c *Call, list []Quota) []Quota
}

// Quotas appends what the rate limits of the pipeline leave to a call to list, outermost first:
// what a server can tell its clients beforehand. What ctx says about the call is replaced by c
// where c is not nil. Gates in shadow mode are left out, and so are those that are no [Quoter],
// such as a limit shared by several processes, of which this one knows a part only.
func (p *Pipeline) Quotas(ctx context.Context, c *Call, list []Quota) []Quota {
	if p == nil {
		return list
	}
	pl := p.plan.Load()
	var now time.Time
	for i := range pl.gates {
		g := &pl.gates[i]
		q, ok := g.gate.(Quoter)
		if !ok || g.shadow {
			continue
		}
		if now.IsZero() {
			c, now = callOr(ctx, c), time.Now()
		}
		begin := len(list)
		list = q.Quotas(ctx, now, c, list)
		for j := begin; j < len(list); j++ {
			if part := list[j].Policy; part != "" {
				list[j].Policy = g.name + "." + part
			} else {
				list[j].Policy = g.name
			}
		}
	}
	return list
}
