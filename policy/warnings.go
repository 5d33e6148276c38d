package policy

import (
	"fmt"
	"time"
)

// misfits returns settings of different policies that do not fit together, each with
// the name of the policy it is about.
func misfits(parts []Part) []string {
	var t Timeouts
	for _, p := range parts {
		if p.Timeouts != nil {
			t = *p.Timeouts
		}
	}
	var list []string
	warn := func(p Part, format string, args ...any) {
		list = append(list, p.Name+": "+fmt.Sprintf(format, args...))
	}
	for _, p := range parts {
		if t.Total > 0 && p.MaxWait >= t.Total {
			warn(p, "MaxWait %s is not below the total timeout %s: a call that waits that long has no time left to run", p.MaxWait, t.Total)
		}
		if t.Attempt > 0 && p.SlowAfter >= t.Attempt {
			warn(p, "SlowAfter %s is not below the attempt timeout %s: only an attempt that ignores its context is ever slow", p.SlowAfter, t.Attempt)
		}
		if bound := t.shorter(); p.Hedge != nil && bound > 0 && p.HedgeDelay >= bound {
			warn(p, "the delay %s is not below the timeout %s: no attempt lives to be hedged", p.HedgeDelay, bound)
		}
		if p.Retry == nil || t.Total == 0 {
			continue
		}
		if p.BaseDelay >= t.Total {
			warn(p, "BaseDelay %s is not below the total timeout %s: there is no time for a second attempt", p.BaseDelay, t.Total)
		}
		if need := time.Duration(p.MaxAttempts) * t.Attempt; p.MaxAttempts > 1 && t.Attempt < t.Total && need > t.Total {
			warn(p, "%d attempts of up to %s each do not fit into the total timeout %s: the last ones may never run", p.MaxAttempts, t.Attempt, t.Total)
		}
	}
	return list
}

// shorter returns the bound of an attempt, whichever timeout it comes from; 0 when there
// is none.
func (t Timeouts) shorter() time.Duration {
	if t.Total > 0 && (t.Attempt == 0 || t.Total < t.Attempt) {
		return t.Total
	}
	return t.Attempt
}
