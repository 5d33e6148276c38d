package config

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// Rules returns everything that [Lint] looks for, in the order of their numbers. A number
// keeps its meaning for ever.
func Rules() []*Rule { return rules }

var rules = []*Rule{
	{
		ID: "BW000", Name: "bad-waiver", Severity: Warning,
		Problem: "A comment that waives a rule has no reason, or nothing to waive.",
		Fix:     "Say why the finding may stand, or remove the comment.",
	},
	{
		ID: "BW001", Name: "wait-without-bound", Severity: Fault, find: waitWithoutBound,
		Problem:  "Calls wait, and how many of them at a time is not stated, or is more than can be served.",
		Fix:      "Set MaxWaiters to what is served within MaxWait, or do not wait.",
		Incident: "Callers that waited 3 s for a token took all 200 workers of a login service when a store recovered; 600 of 800 workers of a second one stood in a limiter whose rate was never exceeded.",
	},
	{
		ID: "BW002", Name: "bucket-above-concurrency", Severity: Warning, find: bucketAboveConcurrency,
		Problem:  "The bucket holds more calls than may be in flight: a burst passes the rate limit only to be refused behind it.",
		Fix:      "Set Burst to the concurrency limit or below.",
		Incident: "A vendor with a quota of 10 per second saw 25 within one.",
	},
	{
		ID: "BW003", Name: "rate-without-concurrency", Severity: Warning, find: rateWithoutConcurrency,
		Problem:  "A rate is limited and calls in flight are not: when the dependency slows down, rate times latency of them pile up.",
		Fix:      "Add a bulkhead of rate times latency, with headroom.",
		Incident: "A token bucket of 1,000 per second let 5,000 calls of 5 s each into an order service.",
	},
	{
		ID: "BW004", Name: "attempts-above-total", Severity: Warning, find: attemptsAboveTotal,
		Problem:  "All attempts with their timeouts and delays do not fit into the total timeout: the last ones never run, or are cut off.",
		Fix:      "Raise Total, or lower Attempt or MaxAttempts.",
		Incident: "Clients slept through their deadline towards a retry that could not happen, and lost the real error (hashicorp/go-retryablehttp#292).",
	},
	{
		ID: "BW005", Name: "retry-inside-limiter", Severity: Fault, find: retryInsideLimiter,
		Problem:  "The retry is listed inside a gate, as if its attempts passed the gate once. They pass it each time, since a pipeline keeps retries outermost; around another pipeline they would not.",
		Fix:      "List the retry before the gates.",
		Incident: "Retries that ran behind the limiter took a paid dependency over its quota.",
	},
	{
		ID: "BW006", Name: "retries-refusals", Severity: Fault, find: retriesRefusals,
		Problem:  "Refusals of our own gates are retried: callers wait in front of a breaker that is open, or a pool that is full.",
		Fix:      "Leave RetryRejected off.",
		Incident: "Clients that retried refusals kept an overloaded order service overloaded.",
	},
	{
		ID: "BW007", Name: "retries-throttling", Severity: Fault, find: retriesThrottling,
		Problem:  "Calls that the dependency refused for being too many are retried on our own schedule.",
		Fix:      "Leave Throttled as it is, so that only a stated Retry-After is heeded.",
		Incident: "Quota errors that were retried kept an account over its quota.",
	},
	{
		ID: "BW008", Name: "retries-non-idempotent", Severity: Fault, find: retriesNonIdempotent,
		Problem:  "Calls that must not be made twice are retried.",
		Fix:      "Set MaxAttempts to 1, or mark the calls that may be repeated and remove the fact NotIdempotent.",
		Incident: "A client that retried every method had users ask for a way to spare calls that must not be made twice (hashicorp/go-retryablehttp#169).",
	},
	{
		ID: "BW009", Name: "retry-without-budget", Severity: Fault, find: retryWithoutBudget,
		Problem:  "Retries have no budget: a dependency that fails for all gets every call as often as MaxAttempts says.",
		Fix:      "Set a Budget, such as {Ratio: 0.1}.",
		Incident: "1,000 orders per second became 3,000 calls per second at an inventory that was down.",
	},
	{
		ID: "BW010", Name: "window-never-fills", Severity: Warning, find: windowNeverFills,
		Problem:  "At the stated rate the window never holds MinCalls calls: the breaker cannot open.",
		Fix:      "Lower MinCalls, or lengthen Window.",
		Incident: "With a window of 1 s and a minimum of 100 calls a breaker never had enough of them to decide, and stayed half-open (resilience4j/resilience4j#903).",
	},
	{
		ID: "BW011", Name: "probes-never-fit", Severity: Warning, find: probesNeverFit,
		Problem: "The half-open state needs more probes at a time than may be in flight, or than come before their timeout.",
		Fix:     "Lower Probes.",
	},
	{
		ID: "BW012", Name: "limits-grow-inward", Severity: Warning, find: limitsGrowInward,
		Problem:  "A limit further in is higher than one before it: it can never be reached.",
		Fix:      "Let limits decrease inward, layer by layer.",
		Incident: "A chain of limits that grew inward let a wave through to the database, whose pool of connections was the first thing to refuse.",
	},
	{
		ID: "BW013", Name: "outer-timeout-below-inner", Severity: Warning, find: outerTimeoutBelowInner,
		Problem:  "An outer timeout is shorter than one inside it, which can therefore never fire.",
		Fix:      "Let timeouts decrease inward.",
		Incident: "Clients gave up after 500 ms on calls that a service went on with for 10 s.",
	},
	{
		ID: "BW014", Name: "queue-without-bound", Severity: Warning, find: queueWithoutBound,
		Problem:  "A queue or a table of keys is so large that it has no bound in practice.",
		Fix:      "Size a queue as throughput times acceptable wait (size does it), and a table by the keys seen while a bucket refills.",
		Incident: "Circuits that were kept for every key took some 1.5 GB for 5,000 of them (Netflix/Hystrix#1737).",
	},
	{
		ID: "BW015", Name: "hedge-without-budget", Severity: Fault, find: hedgeWithoutBudget,
		Problem: "Hedges have no budget: when all calls become slow, all of them are made twice, and become slower.",
		Fix:     "Set a Budget, such as {Ratio: 0.1}.",
	},
	{
		ID: "BW016", Name: "shared-limit-without-stand-in", Severity: Fault, find: sharedWithoutStandIn,
		Problem:  "A limit in a shared store refuses every call while the store is away, or waits for it for as long as the call has.",
		Fix:      "Set StandIn to local or allow, and Timeout to a fraction of the call's own timeout.",
		Incident: "A gateway that asked its Redis without a timeout froze for 30 s.",
	},
	{
		ID: "BW017", Name: "pool-above-connections", Severity: Warning, find: poolAboveConnections,
		Problem:  "More calls may be in flight than there are connections: the rest wait for one, where nobody sees it.",
		Fix:      "Set the limit to the number of connections or below.",
		Incident: "A query of 50 ms took 550, 500 of which were spent waiting for one of 100 connections.",
	},
	{
		ID: "BW018", Name: "slow-to-trip", Severity: Warning, find: slowToTrip,
		Problem: "When every call hangs until its timeout, too few of them end within the window for the breaker to open.",
		Fix:     "Lengthen Window, lower MinCalls, or shorten the attempt timeout.",
	},
	{
		ID: "BW019", Name: "caller-runs", Severity: Warning, find: callerRuns,
		Problem:  "When the pool is full, callers run the calls themselves: the pool isolates nothing when it matters.",
		Fix:      "Set WhenFull to abort.",
		Incident: "One slow inventory took the threads of all other endpoints with it.",
	},
	{
		ID: "BW020", Name: "fallback-to-itself", Severity: Fault, find: fallbackToItself,
		Problem: "The fallback asks the dependency that has just failed, or one whose own fallback leads back to it.",
		Fix:     "Fall back to something that does not share its fate: a cache, a constant, a queue.",
	},
	{
		ID: "BW021", Name: "quota-too-full", Severity: Warning, find: quotaTooFull,
		Problem:  "The rate is above 80 % of the quota: clocks differ, and others may use the account.",
		Fix:      "Stay at 70 to 80 % of the quota.",
		Incident: "A vendor downgrades accounts that exceed their quota.",
	},
	{
		ID: "BW022", Name: "bucket-of-one", Severity: Note, find: bucketOfOne,
		Problem:  "A bucket of one token loses the fraction that arrives while it is full.",
		Fix:      "Set Burst to 2 or more.",
		Incident: "At 2.5 calls per second a limit of 1 per second let 10 pass in 12 s instead of 12.",
	},
	{
		ID: "BW023", Name: "slow-above-timeout", Severity: Warning, find: slowAboveTimeout,
		Problem:  "SlowAfter is not below the attempt timeout: every slow call is a timeout first.",
		Fix:      "Set SlowAfter well below the attempt timeout.",
		Incident: "A breaker by slow calls opened no earlier than one by errors.",
	},
	{
		ID: "BW024", Name: "one-call-trips", Severity: Warning, find: oneCallTrips,
		Problem:  "A single call can open the breaker.",
		Fix:      "Raise MinCalls, the count, or the number of consecutive failures.",
		Incident: "A breaker by a plain count opened for all tenants at 0.14 % of errors (unkeyed/unkey#6568).",
	},
	{
		ID: "BW025", Name: "no-headroom", Severity: Warning, find: noHeadroom,
		Problem:  "At the stated rate and latency the concurrency limit refuses calls in ordinary times: calls come at random.",
		Fix:      "Raise the limit (size computes it), or let a few wait.",
		Incident: "8 permits for 8 calls in flight on average refuse 24 % of random arrivals.",
	},
}

func waitWithoutBound(l *linter, d *dependency) {
	for _, w := range d.waits {
		switch served := w.perSecond * w.max.Seconds(); {
		case w.waiters == 0:
			l.at(d, w.at, w.path+"MaxWait", "calls wait up to %v, and MaxWaiters is not stated", w.max)
		case w.perSecond > 0 && float64(w.waiters) > math.Ceil(served):
			l.at(d, w.at, w.path+"MaxWaiters", "%d calls may wait, and %.0f are served within %v", w.waiters, math.Ceil(served), w.max)
		}
	}
}

func bucketAboveConcurrency(l *linter, d *dependency) {
	for _, r := range d.rates {
		for _, b := range d.rooms {
			if r.bucket && !r.keyed && !math.IsInf(r.perSecond, 1) && r.burst > b.limit+b.queue {
				l.at(d, r.at, r.burstPath, "%d calls may come at once, and %s has room for %d", r.burst, b.at.Name, b.limit+b.queue)
			}
		}
	}
}

func rateWithoutConcurrency(l *linter, d *dependency) {
	most, r := d.quota()
	if r == nil || len(d.rooms) > 0 || slices.ContainsFunc(d.Policies, func(p Policy) bool { return p.Kind == "system" }) {
		return
	}
	longest := max(d.Facts.P99, d.timeouts.Attempt, d.timeouts.Total)
	switch inFlight := most * longest.Seconds(); {
	case longest == 0:
		l.at(d, r.at, r.path+"Rate", "%.4g calls per second without a timeout or a bulkhead: any number may be in flight", most)
	case inFlight > 10:
		l.at(d, r.at, r.path+"Rate", "%.4g calls per second of up to %v: %.0f in flight", most, longest, inFlight)
	}
}

func attemptsAboveTotal(l *linter, d *dependency) {
	if d.retry == nil || d.timeouts.Total == 0 || d.timeouts.Attempt == 0 {
		return
	}
	attempts := or(d.retry.MaxAttempts, 3)
	if attempts < 0 {
		return
	}
	if all := time.Duration(attempts) * d.timeouts.Attempt; all > d.timeouts.Total {
		l.at(d, d.timeAt, "Total", "%d attempts of %v take %v, and the call has %v", attempts, d.timeouts.Attempt, all, d.timeouts.Total)
	}
}

func retryInsideLimiter(l *linter, d *dependency) {
	for i := range d.Policies {
		if d.Ordered && d.Policies[i].Kind == "retry" && i > 0 && d.Policies[i-1].Kind != "timeout" {
			l.at(d, &d.Policies[i], "", "listed inside %s", d.Policies[i-1].Name)
		}
	}
}

func retriesRefusals(l *linter, d *dependency) {
	if d.retry != nil && d.retry.RetryRejected {
		l.at(d, d.retryAt, "RetryRejected", "refusals are retried")
	}
}

func retriesThrottling(l *linter, d *dependency) {
	if d.retry != nil && d.retry.Throttled.Retry == retry.Always {
		l.at(d, d.retryAt, "Throttled.Retry", "throttled calls are retried, also without a Retry-After")
	}
}

func retriesNonIdempotent(l *linter, d *dependency) {
	if d.retry != nil && d.Facts.NotIdempotent && d.retry.MaxAttempts != 1 {
		l.at(d, d.retryAt, "MaxAttempts", "%s attempts of calls that are not idempotent", attemptsText(d.retry.MaxAttempts))
	}
}

func attemptsText(n int) string {
	if n < 0 {
		return "unlimited"
	}
	return itoa(or(n, 3))
}

func retryWithoutBudget(l *linter, d *dependency) {
	if d.retry == nil || d.retry.MaxAttempts == 1 {
		return
	}
	if n := d.retryAt.node.field("Budget"); n != nil {
		if _, none := specialOf(n); none {
			l.at(d, d.retryAt, "Budget", "%s attempts of each call, and no budget", attemptsText(d.retry.MaxAttempts))
		}
	}
}

func hedgeWithoutBudget(l *linter, d *dependency) {
	for i := range d.Policies {
		p := &d.Policies[i]
		h, ok := p.Spec.(retry.Hedge)
		if !ok {
			continue
		}
		if n := p.node.field("Budget"); n != nil {
			if _, none := specialOf(n); none {
				l.at(d, p, "Budget", "up to %d hedges beside each attempt, and no budget", or(h.MaxHedges, 1))
			}
		}
	}
}

func sharedWithoutStandIn(l *linter, d *dependency) {
	for _, s := range d.stores {
		if s.noStandIn {
			l.at(d, s.at, s.path+"StandIn", "no call is let in while the store is away")
		}
		for _, b := range []struct {
			what string
			time time.Duration
		}{
			{"the call", d.timeouts.Total},
			{"an attempt", d.timeouts.Attempt},
			{"the caller", d.Facts.CallerTimeout},
		} {
			if b.time > 0 && s.timeout >= b.time {
				l.at(d, s.at, s.path+"Timeout", "up to %v for the store, and %s has %v", s.timeout, b.what, b.time)
				break
			}
		}
	}
}

func windowNeverFills(l *linter, d *dependency) {
	offered := d.offered()
	for _, b := range d.breakers {
		c := b.cfg
		if offered == 0 || c.LastCalls > 0 || c.FailureRatio < 0 && c.SlowRatio < 0 || c.ConsecutiveFailures > 0 {
			continue
		}
		window := c.Window
		if window == 0 {
			window = 10 * time.Second
		}
		if held := offered * window.Seconds(); held < float64(or(c.MinCalls, 20)) {
			l.at(d, b.at, "MinCalls", "%.4g calls per second make %.4g in %v, and the rules want %d", offered, held, window, or(c.MinCalls, 20))
		}
	}
}

func probesNeverFit(l *linter, d *dependency) {
	for _, b := range d.breakers {
		probes := max(or(b.cfg.Probes, 3), b.cfg.Successes)
		for _, room := range d.rooms {
			if probes > room.limit {
				l.at(d, b.at, "Probes", "%d probes, and %s has room for %d", probes, room.at.Name, room.limit)
			}
		}
		timeout := max(b.cfg.ProbeTimeout, b.cfg.OpenFor, 10*time.Second)
		if b.cfg.ProbeTimeout > 0 {
			timeout = b.cfg.ProbeTimeout
		}
		if offered := d.offered(); offered > 0 && offered*timeout.Seconds() < float64(probes) {
			l.at(d, b.at, "Probes", "%d probes, and %.4g calls come within their timeout of %v", probes, offered*timeout.Seconds(), timeout)
		}
	}
}

func limitsGrowInward(l *linter, d *dependency) {
	var outer *rate
	for i := range d.rates {
		r := &d.rates[i]
		if _, lanes := r.at.Spec.(ratelimit.Lanes); lanes || r.keyed {
			continue
		}
		if outer != nil && r.perSecond > outer.perSecond {
			l.at(d, r.at, r.path+"Rate", "%.4g per second behind %s with %.4g per second", r.perSecond, outer.at.Name, outer.perSecond)
		}
		if outer == nil || r.perSecond < outer.perSecond {
			outer = r
		}
	}
	var outside *room
	for i := range d.rooms {
		r := &d.rooms[i]
		if outside != nil && r.limit > outside.limit {
			l.at(d, r.at, r.field, "%d at a time behind %s with %d", r.limit, outside.at.Name, outside.limit)
		}
		if outside == nil || r.limit < outside.limit {
			outside = r
		}
	}
}

func outerTimeoutBelowInner(l *linter, d *dependency) {
	t := d.timeouts
	if t.Total > 0 && t.Attempt >= t.Total {
		l.at(d, d.timeAt, "Attempt", "%v within a total of %v", t.Attempt, t.Total)
	}
	if caller := d.Facts.CallerTimeout; caller > 0 {
		switch {
		case t.Total > caller:
			l.at(d, d.timeAt, "Total", "%v for callers that wait %v", t.Total, caller)
		case t.Total == 0 && t.Attempt > caller:
			l.at(d, d.timeAt, "Attempt", "%v for callers that wait %v", t.Attempt, caller)
		}
	}
	for _, w := range d.waits {
		if t.Total > 0 && w.max >= t.Total {
			l.at(d, w.at, w.path+"MaxWait", "a wait of up to %v within a total of %v", w.max, t.Total)
		}
	}
}

func queueWithoutBound(l *linter, d *dependency) {
	for i := range d.Policies {
		p := &d.Policies[i]
		switch c := p.Spec.(type) {
		case bulkhead.Pool:
			if workers := or(c.Workers, 100); c.Queue > 100*workers {
				l.at(d, p, "Queue", "%d calls for %d workers: at %s the last one waits %v", c.Queue, workers, latencyText(d), time.Duration(c.Queue/workers)*latencyOf(d))
			}
		case ratelimit.Keyed:
			if c.MaxKeys > 10_000_000 {
				l.at(d, p, "MaxKeys", "%d keys take %d MB", c.MaxKeys, c.MaxKeys/1_000_000*75)
			}
		}
	}
}

func latencyOf(d *dependency) time.Duration {
	if d.Facts.Latency > 0 {
		return d.Facts.Latency
	}
	return 100 * time.Millisecond
}

func latencyText(d *dependency) string { return fmt.Sprint(latencyOf(d)) + " a call" }

func poolAboveConnections(l *linter, d *dependency) {
	for _, r := range d.rooms {
		if n := d.Facts.Connections; n > 0 && r.limit > n {
			l.at(d, r.at, r.field, "%d calls at a time over %d connections", r.limit, n)
		}
	}
	if d.Facts.Connections > 0 && len(d.rooms) == 0 {
		l.fact(d, "Connections", "%d connections, and no limit on the calls in flight", d.Facts.Connections)
	}
}

func slowToTrip(l *linter, d *dependency) {
	hang := d.timeouts.Attempt
	if hang == 0 {
		hang = d.timeouts.Total
	}
	if hang == 0 {
		return
	}
	for _, b := range d.breakers {
		window := b.cfg.Window
		if b.cfg.LastCalls > 0 || b.cfg.ConsecutiveFailures > 0 {
			continue
		}
		if window == 0 {
			window = 10 * time.Second
		}
		for _, r := range d.rooms {
			ended := float64(r.limit) * window.Seconds() / hang.Seconds()
			if ended < float64(or(b.cfg.MinCalls, 20)) {
				l.at(d, b.at, "MinCalls", "%d calls at a time that take %v each: %.3g end within %v, and the rules want %d", r.limit, hang, ended, window, or(b.cfg.MinCalls, 20))
			}
		}
	}
}

func callerRuns(l *linter, d *dependency) {
	for i := range d.Policies {
		if c, ok := d.Policies[i].Spec.(bulkhead.Pool); ok && c.WhenFull == bulkhead.CallerRuns {
			l.at(d, &d.Policies[i], "WhenFull", "callers run what finds the pool full")
		}
	}
}

func fallbackToItself(l *linter, d *dependency) {
	seen := []string{d.Name}
	for next := d.Facts.FallsBackTo; next != ""; {
		if slices.Contains(seen, next) {
			if next == d.Name {
				l.fact(d, "FallsBackTo", "the fallback leads back to %s", d.Name)
			}
			return
		}
		seen = append(seen, next)
		i := slices.IndexFunc(l.settings.Dependencies, func(o Dependency) bool { return o.Name == next })
		if i < 0 {
			return
		}
		next = l.settings.Dependencies[i].Facts.FallsBackTo
	}
}

func quotaTooFull(l *linter, d *dependency) {
	quota := perSecond(d.Facts.Quota)
	most, r := d.quota()
	switch {
	case quota == 0:
	case r == nil:
		l.fact(d, "Quota", "a quota of %v, and no limit on the rate", d.Facts.Quota)
	case most > 0.8*quota*(1+1e-9):
		l.at(d, r.at, r.path+"Rate", "%.4g per second are %.0f %% of the quota of %.4g", most, 100*most/quota, quota)
	}
}

func bucketOfOne(l *linter, d *dependency) {
	for _, r := range d.rates {
		if r.bucket && r.burst == 1 && r.perSecond > 0 {
			l.at(d, r.at, r.burstPath, "one token at %.4g per second", r.perSecond)
		}
	}
}

func slowAboveTimeout(l *linter, d *dependency) {
	for _, b := range d.breakers {
		if t := d.timeouts.Attempt; t > 0 && b.cfg.SlowAfter >= t {
			l.at(d, b.at, "SlowAfter", "%v, and an attempt ends after %v", b.cfg.SlowAfter, t)
		}
	}
}

func oneCallTrips(l *linter, d *dependency) {
	for _, b := range d.breakers {
		switch c := b.cfg; {
		case c.MinCalls == 1 || c.LastCalls == 1:
			l.at(d, b.at, "MinCalls", "one call fills the window")
		case c.FailureCount == 1:
			l.at(d, b.at, "FailureCount", "one failed call opens it")
		case c.ConsecutiveFailures == 1:
			l.at(d, b.at, "ConsecutiveFailures", "one failed call opens it")
		}
	}
}

func noHeadroom(l *linter, d *dependency) {
	r, latency := perSecond(d.Facts.Rate), d.Facts.Latency
	if r == 0 || latency == 0 {
		return
	}
	most, _ := d.quota() // what a limit refuses takes no room
	r = min(r, most)
	busy := r * latency.Seconds()
	for _, b := range d.rooms {
		waits := slices.ContainsFunc(d.waits, func(w wait) bool { return w.at == b.at }) || b.queue > 0
		if refused := bulkhead.RefusedShare(busy, b.limit); refused > 0.01 && !waits {
			l.at(d, b.at, b.field, "%.4g calls per second of %v are %.4g in flight: %d at a time refuse %.1f %% of random arrivals, %d would refuse 1 %%",
				r, latency, busy, b.limit, 100*refused, bulkhead.LimitFor(r, latency, 0.01))
		}
	}
}
