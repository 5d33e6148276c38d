package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// The words that the server puts together are in this file; those of the page are in
// ui/src/texts.js.

// stateWords name the states of a breaker.
var stateWords = map[string]string{
	"closed":        "closed",
	"open":          "open",
	"half_open":     "half-open",
	"recovering":    "recovering",
	"forced_open":   "forced open",
	"forced_closed": "forced closed",
	"throttling":    "throttling",
}

func stateWord(s string) string {
	if w, ok := stateWords[s]; ok {
		return w
	}
	return clean(s, maxText)
}

// commandWords say why a state was entered, where no figure decided.
var commandWords = map[string]string{
	"start":            "as it has been from the start",
	"open_passed":      "the open time has passed, and probes are let through",
	"probe_failed":     "a probe failed",
	"probe_slow":       "a probe was slow",
	"probe_timeout":    "a probe did not return in time",
	"probes_succeeded": "the probes succeeded",
	"ramp_ended":       "the load has returned",
	"reset":            "reset by hand",
	"forced":           "by hand",
	"observed":         "set to only watch, by hand",
	"released":         "the command was ended",
	"expired":          "the command has ended by itself",
	"throttled":        "the dependency accepts too few calls",
	"accepted":         "the dependency accepts enough calls again",
	"failure_ratio":    "too many calls failed",
	"slow_ratio":       "too many calls were slow",
	"failure_count":    "too many calls failed",

	"consecutive_failures": "too many calls failed in a row",
}

// whyWords says why a breaker is in its state, with the figures where they are known.
func whyWords(b *policy.BreakerSnapshot, ch *policy.StateChange) string {
	var s string
	if ch != nil && ch.Why == b.Why && ch.Generation == b.Generation {
		s = changeWords(ch)
	} else {
		s = commandWords[b.Why]
	}
	if b.Note != "" {
		s = strings.TrimSpace(s + " (" + clean(b.Note, maxText) + ")")
	}
	return s
}

// fullWhy says why a breaker is not closed: with what it began, and why it still is not.
func fullWhy(b *policy.BreakerSnapshot, ch *policy.StateChange, began Change, seen bool) string {
	s := whyWords(b, ch)
	if !seen || began.Words == s || b.State == "forced_open" || strings.HasPrefix(s, began.Words) {
		return s
	}
	return began.Words + "; then " + s
}

// changeWords says why a state began.
func changeWords(ch *policy.StateChange) string {
	switch ch.Why {
	case "failure_ratio":
		return fmt.Sprintf("%s of %d calls failed; the limit is %s", percent(ch.Ratio), ch.Calls, percent(ch.Threshold))
	case "slow_ratio":
		return fmt.Sprintf("%s of %d calls were slow; the limit is %s", percent(ch.Ratio), ch.Calls, percent(ch.Threshold))
	case "failure_count":
		return fmt.Sprintf("%s of %d calls failed; the limit is %s", number(ch.Ratio), ch.Calls, number(ch.Threshold))
	case "consecutive_failures":
		return fmt.Sprintf("%s calls failed in a row; the limit is %s", number(ch.Ratio), number(ch.Threshold))
	case "probe_failed", "probe_slow", "probe_timeout":
		s := commandWords[ch.Why]
		if ch.Calls > 0 {
			s += fmt.Sprintf(" (of %d, %d failed", ch.Calls, ch.Failures)
			if ch.Slow > 0 {
				s += fmt.Sprintf(" and %d were slow", ch.Slow)
			}
			s += ")"
		}
		return s
	}
	if w, ok := commandWords[ch.Why]; ok {
		return w
	}
	return clean(ch.Why, maxText)
}

func percent(f float64) string {
	switch p := f * 100; {
	case math.IsNaN(p):
		return "?"
	case p > 0 && p < 1:
		return fmt.Sprintf("%.1f %%", p)
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

func number(f float64) string {
	switch {
	case math.IsInf(f, 0) || math.Abs(f) >= math.MaxFloat64:
		return "unlimited"
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.FormatInt(int64(f), 10)
	case math.Abs(f) < 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

func perSecond(f float64) string {
	if f > 0 && f < 10 {
		return fmt.Sprintf("%.1f/s", f)
	}
	return fmt.Sprintf("%.0f/s", f)
}

// howLong says a duration in a few signs.
func howLong(d time.Duration) string {
	switch d = max(d, 0); {
	case d == policy.Never:
		return "ever"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func millis(ms float64) string {
	return howLong(time.Duration(ms * float64(time.Millisecond)))
}

// reasonWords say what a refusal of a reason means.
var reasonWords = map[policy.Reason]string{
	policy.ReasonUnknown:     "it gave no reason",
	policy.ReasonRate:        "no token is left",
	policy.ReasonCost:        "the call costs more than the limit can ever hold",
	policy.ReasonConcurrency: "every permit is taken",
	policy.ReasonWaiters:     "every permit is taken and the queue is full",
	policy.ReasonWait:        "nothing came free in the time allowed to wait",
	policy.ReasonDeadline:    "the wait would outlast the caller's deadline",
	policy.ReasonOpen:        "it is open",
	policy.ReasonProbes:      "it is half-open and its probes are all in flight",
	policy.ReasonForced:      "it is held open by hand",
	policy.ReasonRamp:        "it is recovering and lets a share through",
	policy.ReasonThrottle:    "the dependency refuses a share, which is not sent",
	policy.ReasonClosed:      "the pipeline was closed",
}

func reasonWord(r policy.Reason) string {
	if w, ok := reasonWords[r]; ok {
		return w
	}
	return r.String()
}

// refusalWords explains a refusal with the figures of the policy at that moment.
func refusalWords(name string, r policy.Reason, retryAfter time.Duration, p *policy.PolicySnapshot) string {
	s := "refused by " + clean(name, maxText) + ": "
	switch {
	case p == nil:
		s += reasonWord(r)
	case p.Bulkhead != nil:
		s += bulkheadWords(p.Bulkhead)
		if r == policy.ReasonWait || r == policy.ReasonDeadline {
			s += "; " + reasonWord(r)
		}
	case p.Limiter != nil:
		s += limiterWords(p.Limiter)
		if r != policy.ReasonRate {
			s += "; " + reasonWord(r)
		}
	case p.Breaker != nil:
		s += reasonWord(r)
		if p.Breaker.Why != "" {
			s += ", " + commandWords[p.Breaker.Why]
		}
	default:
		s += reasonWord(r)
	}
	switch {
	case retryAfter == policy.Never:
		s += "; no waiting will help"
	case retryAfter > 0:
		s += "; worth another try in " + howLong(retryAfter)
	}
	return s
}

func bulkheadWords(b *policy.BulkheadSnapshot) string {
	s := fmt.Sprintf("%d of %d in use", b.InFlight, b.Limit)
	if b.MaxWaiters > 0 {
		s += fmt.Sprintf(", %d of %d waiting", b.Waiting, b.MaxWaiters)
	}
	if b.Orphans > 0 {
		s += fmt.Sprintf(", %d without a caller", b.Orphans)
	}
	if b.Overloaded {
		s += ", the queue is shed"
	}
	return s
}

func limiterWords(l *policy.LimiterSnapshot) string {
	if l.Load != nil {
		s := "not overloaded"
		if l.Load.Overloaded {
			s = fmt.Sprintf("overloaded: %d in flight, %d allowed", l.Load.InFlight, l.Load.Limit)
		}
		if l.Load.CPU > 0 {
			s += ", CPU " + percent(l.Load.CPU)
		}
		return s
	}
	s := fmt.Sprintf("%s of %s tokens, %s a second", number(finite(l.Tokens)), number(l.Burst), number(l.Rate))
	if l.Waiting > 0 {
		s += fmt.Sprintf(", %d of %d waiting", l.Waiting, l.MaxWaiters)
	}
	if l.Keyed != nil {
		s = fmt.Sprintf("%s a second and %s at once for each of %d keys (%d at most)", number(l.Rate), number(l.Burst), l.Keyed.Keys, l.Keyed.MaxKeys)
	}
	if l.Feedback != nil && l.Feedback.Drain > 0 {
		s += ", closed for " + howLong(l.Feedback.Drain)
	}
	return s
}

func breakerWords(b *policy.BreakerSnapshot, now time.Time) string {
	s := stateWord(b.State)
	if !b.Since.IsZero() {
		s += " for " + howLong(now.Sub(b.Since))
	}
	switch {
	case b.State == "half_open":
		s += fmt.Sprintf("; %d of %d probes in flight", b.ProbesInFlight, b.MaxProbes)
	case b.RetryAfter > 0:
		s += "; " + nextWords(b)
	case b.State == "recovering":
		s += "; lets " + percent(b.Share) + " of the calls through"
	}
	if b.Observing {
		s += "; only watches"
	}
	if b.Keys > 0 {
		s += fmt.Sprintf("; %d of %d keys are open", b.OpenKeys, b.Keys)
	}
	return s
}

// nextWords says what follows a state by itself.
func nextWords(b *policy.BreakerSnapshot) string {
	switch {
	case b.State == "half_open":
		return fmt.Sprintf("now: %d of %d probes in flight", b.ProbesInFlight, b.MaxProbes)
	case b.State == "open" && b.RetryAfter > 0:
		return "next probe in " + howLong(b.RetryAfter)
	case b.State == "open":
		return "next probe with the next call"
	case strings.HasPrefix(b.State, "forced"):
		if b.RetryAfter > 0 {
			return "the command ends in " + howLong(b.RetryAfter)
		}
		return "never: it is held by hand until it is released"
	}
	return ""
}

// policyWords says in a sentence how a policy is.
func policyWords(p *policy.PolicySnapshot, now time.Time) string {
	var s string
	switch {
	case p.Breaker != nil:
		s = breakerWords(p.Breaker, now)
	case p.Bulkhead != nil:
		s = bulkheadWords(p.Bulkhead)
	case p.Limiter != nil:
		s = limiterWords(p.Limiter)
	case p.Retry != nil:
		s = "any number of attempts"
		if p.Retry.MaxAttempts > 0 {
			s = fmt.Sprintf("at most %d attempts", p.Retry.MaxAttempts)
		}
		if p.Retry.HasBudget {
			s += fmt.Sprintf("; %s retries left in the budget of %s", number(math.Max(math.Floor(p.Retry.BudgetRemaining), 0)), percent(p.Retry.BudgetRatio))
		}
	case p.Hedge != nil:
		s = fmt.Sprintf("at most %d hedges, after %s", p.Hedge.MaxHedges, howLong(p.Hedge.Delay))
	case p.Fallback != nil:
		s = fmt.Sprintf("%d answers given, %d failed", p.Fallback.Served, p.Fallback.Failed)
		if a := ageWords(p.Fallback); a != "" {
			s += "; " + a
		}
	case p.Timeouts != nil:
		var parts []string
		if p.Timeouts.Total > 0 {
			parts = append(parts, howLong(p.Timeouts.Total)+" for the call")
		}
		if p.Timeouts.Attempt > 0 {
			parts = append(parts, howLong(p.Timeouts.Attempt)+" for an attempt")
		}
		s = strings.Join(parts, ", ")
	}
	if p.Shadow {
		s = strings.TrimPrefix(s+"; only watches", "; ")
	}
	return s
}

// ageWords says how old what a fallback serves may be; empty when that has no age.
func ageWords(f *policy.FallbackSnapshot) string {
	if f.Stale == nil {
		return ""
	}
	if f.Stale.OldestAge == 0 {
		return "no old value was served yet; at most " + howLong(f.Stale.MaxAge) + " old ones would be"
	}
	return "its values are up to " + howLong(f.Stale.OldestAge) + " old; older than " + howLong(f.Stale.MaxAge) + " are not served"
}

// kindWords say how an attempt ended.
var kindWords = map[policy.Kind]string{
	policy.NotRun:    "did not run",
	policy.Success:   "succeeded",
	policy.Failure:   "failed",
	policy.Timeout:   "timed out",
	policy.Busy:      "failed: the dependency is overloaded",
	policy.Throttled: "was refused by the dependency: over its limit",
	policy.Permanent: "was answered with an error that another try cannot change",
	policy.Canceled:  "was cancelled by its caller",
}

func failureWords(e policy.AttemptEnd) string {
	s := "attempt"
	if e.Number > 1 {
		s = fmt.Sprintf("attempt %d", e.Number)
	}
	s += " " + kindWords[e.Outcome.Kind]
	if e.Outcome.Code > 0 {
		s += fmt.Sprintf(" (status %d)", e.Outcome.Code)
	}
	if e.Outcome.Duration > 0 {
		s += " after " + howLong(e.Outcome.Duration)
	}
	if e.Outcome.Pushback > 0 {
		s += "; it asked to be left alone for " + howLong(e.Outcome.Pushback)
	}
	return s
}
