package grafana

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// dependency shows one dependency of one service. Panels of what it has no policy for
// stay empty.
func dependency() *dashboard.DashboardBuilder {
	b := board{matchers: `job="$job",dependency="$dependency",instance=~"$instance"`, alerts: `job="$job",dependency="$dependency"`}
	d := newDashboard(dependencyUID, "Breakwater / Dependency", "One dependency of one service. Rows of policies that its pipeline does not have stay empty.").
		WithVariable(labelValues("job", "Service", "")).
		WithVariable(labelValues("dependency", "Dependency", `job="$job"`)).
		WithVariable(allOf(labelValues("instance", "Instance", `job="$job",dependency="$dependency"`))).
		Link(link("Fleet", "What is open where, who refuses and why", fleetUID))
	marks(d, b)

	b.now(d)
	b.breakers(d)
	b.outcomes(d)
	b.latency(d)
	b.retries(d)
	b.hedges(d)
	b.fallbacks(d)
	b.bulkheads(d)
	b.limiters(d)
	b.shared(d)
	b.keys(d)
	b.shedding(d)
	return d
}

func (b board) now(d *dashboard.DashboardBuilder) {
	row(d, "Now",
		b.number("Calls", "Finished calls a second, refused ones included.", perSecond,
			`sum(rate(breakwater_calls_total{@}[5m]))`, 0, 0),
		b.number("Calls that fail", "Share that failed or was refused. Cancelled ones are left out.", share,
			`sum(rate(breakwater_calls_total{@,outcome!~"success|permanent|canceled"}[5m])) / sum(rate(breakwater_calls_total{@,outcome!="canceled"}[5m]))`, 0.01, 0.05),
		b.number("Attempts refused", "Share that a gate refused.", share,
			`sum(rate(breakwater_rejections_total{@}[5m])) / sum(rate(breakwater_attempts_total{@}[5m]))`, 0.01, 0.05),
		b.number("Fallbacks served", "Share of calls that a fallback answered.", share,
			`sum(rate(breakwater_fallbacks_total{@,result="served"}[5m])) / sum(rate(breakwater_calls_total{@}[5m]))`, 0.01, 0.1),
		b.number("p99 of attempts", "Without the time in queues and between retries.", seconds,
			strings.ReplaceAll(quantile("0.99", "breakwater_attempt_duration_seconds", ""), "$__rate_interval", "5m"), 0, 0),
		b.number("Breakers that refuse", "Open, half-open or forced open, each counted once for every instance.", count,
			`sum(breakwater_breaker_state{@,state=~"open|half_open|forced_open"})`, 1, 2),
	)
}

func (b board) breakers(d *dashboard.DashboardBuilder) {
	row(d, "Breakers",
		b.timeline("States", "Of each breaker in each instance. Of a keyed one, the state of the key that is worst off.",
			query{stateCode(), "{{policy}} {{instance}}"}),
		b.graph("Share of calls that failed, as breakers see it", "Of the window. While open, of the calls that opened it.", share,
			query{`max by (policy) (breakwater_breaker_window_failure_ratio{@})`, "{{policy}} failed"},
			query{`max by (policy) (breakwater_breaker_window_slow_ratio{@})`, "{{policy}} slow"}),
		b.graph("Calls in the window", "Fewer than MinCalls open nothing. While half-open, the probes that have ended.", count,
			query{`min by (policy) (breakwater_breaker_window_calls{@})`, "{{policy}} least"},
			query{`max by (policy) (breakwater_breaker_window_calls{@})`, "{{policy}} most"}),
		b.graph("Share admitted", "Of calls, apart from probes. The mean of all instances; rises while recovering.", share,
			query{`avg by (policy) (breakwater_breaker_admitted_ratio{@})`, "{{policy}}"}),
		b.graph("Openings", "How often breakers opened, and throttles began to refuse.", count,
			query{`sum by (policy) (increase(breakwater_breaker_opened_total{@}[$__rate_interval]))`, "{{policy}}"}),
		b.graph("Time to the next probe", "Or to the release of a forced state: the longest of all instances.", seconds,
			query{`max by (policy) (breakwater_breaker_retry_after_seconds{@})`, "{{policy}}"}),
		b.graph("Failures in a row, and calls spared", "Consecutive failures where that rule is on, and calls let through while observing that would have been refused.", count,
			query{`max by (policy) (breakwater_breaker_consecutive_failures{@})`, "{{policy}} in a row"},
			query{`sum by (policy) (increase(breakwater_breaker_spared_total{@}[$__rate_interval]))`, "{{policy}} spared"}),
		b.list("Modes", "enforce decides, shadow and observe only watch. With the number of instances.", count,
			`count by (policy, kind, mode) (breakwater_gate_info{@})`, []string{"policy", "kind", "mode"}, "instances").Span(full),
	)
}

func (b board) outcomes(d *dashboard.DashboardBuilder) {
	row(d, "Outcomes",
		b.stacked("Calls", "By the outcome of the last attempt that ran; not_run was refused, or given up before it began.",
			query{`sum by (outcome) (rate(breakwater_calls_total{@}[$__rate_interval]))`, "{{outcome}}"}),
		b.stacked("Attempts", "By outcome; not_run was refused.",
			query{`sum by (outcome) (rate(breakwater_attempts_total{@}[$__rate_interval]))`, "{{outcome}}"}),
		b.stacked("Refusals", "By policy and reason.",
			query{`sum by (policy, reason) (rate(breakwater_rejections_total{@}[$__rate_interval]))`, "{{policy}} {{reason}}"}),
		b.graph("Share refused", "Of attempts, by policy and reason.", share,
			query{`sum by (policy, reason) (rate(breakwater_rejections_total{@}[$__rate_interval])) / on () group_left sum (rate(breakwater_attempts_total{@}[$__rate_interval]))`, "{{policy}} {{reason}}"}),
		b.graph("What shadow gates would refuse", "These attempts ran, and are not among the refusals.", perSecond,
			query{`sum by (policy, reason) (rate(breakwater_shadow_rejections_total{@}[$__rate_interval]))`, "{{policy}} {{reason}}"}),
		b.graph("Panics, late outcomes, bodies left open", "Attempts that panicked, outcomes that came too late to count, responses that nobody closed.", perSecond,
			query{`sum(rate(breakwater_panics_total{@}[$__rate_interval]))`, "panics"},
			query{`sum(rate(breakwater_discarded_total{@}[$__rate_interval]))`, "too late"},
			query{`sum(rate(breakwater_abandoned_total{@}[$__rate_interval]))`, "bodies left open"}),
	)
}

func (b board) latency(d *dashboard.DashboardBuilder) {
	of := func(what, q, name string) query {
		return query{quantile(q, "breakwater_"+what+"_duration_seconds", ""), name}
	}
	row(d, "Latency",
		b.graph("Calls", "What callers waited: queues, retries, their delays and the fallback included. Of calls that ran.", seconds,
			of("call", "0.5", "p50"), of("call", "0.9", "p90"), of("call", "0.99", "p99"),
			query{mean("breakwater_call_duration_seconds", ""), "mean"}),
		b.graph("Attempts", "Of those that ran, without the time in queues and between retries. Read from buckets, so off by up to the width of one.", seconds,
			of("attempt", "0.5", "p50"), of("attempt", "0.9", "p90"), of("attempt", "0.99", "p99"),
			query{mean("breakwater_attempt_duration_seconds", ""), "mean"}),
		b.buckets("Attempts, by duration", "How many a second were in each bucket.",
			`sum by (le) (rate(breakwater_attempt_duration_seconds_bucket{@}[$__rate_interval])) or sum(rate(breakwater_attempt_duration_seconds{@}[$__rate_interval]))`),
		b.graph("Mean time in queues, and on workers", "Of attempts that stood in the queue of a bulkhead, whatever became of them; and of functions on a pool, until their own end.", seconds,
			query{mean("breakwater_bulkhead_wait_seconds", "policy"), "{{policy}} queue"},
			query{mean("breakwater_bulkhead_run_seconds", "policy"), "{{policy}} run"}).Span(full),
	)
}

func (b board) retries(d *dashboard.DashboardBuilder) {
	row(d, "Retries and their budget",
		b.graph("Retries per call", "How much load they add to the dependency.", share,
			query{`sum(rate(breakwater_retries_total{@}[$__rate_interval])) / sum(rate(breakwater_calls_total{@}[$__rate_interval]))`, "retries per call"}),
		b.graph("Why calls were not tried again", "budget: too many calls fail for retries to help. attempts, max_duration, deadline: tried for as long as was allowed.", perSecond,
			query{`sum by (stop) (rate(breakwater_retry_stops_total{@}[$__rate_interval]))`, "{{stop}}"}),
		b.graph("Budget", "Retries that it allows now, in the instance that has least and in the one that has most.", count,
			query{`min by (policy) (breakwater_retry_budget_remaining{@})`, "{{policy}} least"},
			query{`max by (policy) (breakwater_retry_budget_remaining{@})`, "{{policy}} most"}),
	)
}

func (b board) hedges(d *dashboard.DashboardBuilder) {
	row(d, "Hedges",
		b.graph("Hedges", "Attempts started beside one that was slow: those that ran, those whose answer was used, and those that were due and kept back by the budget or by a gate.", perSecond,
			query{`sum by (policy) (rate(breakwater_hedges_total{@}[$__rate_interval]))`, "{{policy}} started"},
			query{`sum by (policy) (rate(breakwater_hedges_won_total{@}[$__rate_interval]))`, "{{policy}} won"},
			query{`sum by (policy) (rate(breakwater_hedges_suppressed_total{@}[$__rate_interval]))`, "{{policy}} no budget"},
			query{`sum by (policy) (rate(breakwater_hedges_refused_total{@}[$__rate_interval]))`, "{{policy}} refused"}),
		b.graph("Delay", "How long an attempt that begins now may run before it is hedged: the longest of all instances. 0 while too little is known.", seconds,
			query{`max by (policy) (breakwater_hedge_delay_seconds{@})`, "{{policy}}"}),
		b.graph("Budget of hedges", "Those that it allows now, in the instance that has least.", count,
			query{`min by (policy) (breakwater_hedge_budget_remaining{@})`, "{{policy}}"}),
	)
}

func (b board) fallbacks(d *dashboard.DashboardBuilder) {
	row(d, "Fallback",
		b.graph("Fallbacks", "Times one was asked: it answered (served), could not (failed), was kept from it by its own gate (rejected), or put another error in place (mapped).", perSecond,
			query{`sum by (policy, result) (rate(breakwater_fallbacks_total{@}[$__rate_interval]))`, "{{policy}} {{result}}"}).Span(half),
		b.graph("Share of calls answered by a fallback", "Users got something, and not the real thing.", share,
			query{`sum by (policy) (rate(breakwater_fallbacks_total{@,result="served"}[$__rate_interval])) / on () group_left sum (rate(breakwater_calls_total{@}[$__rate_interval]))`, "{{policy}}"}).Span(half),
		b.stacked("Remembered values: callers", "By what they found: a fresh value (hit), one past its freshness (stale), a remembered error (negative), or nothing (miss).",
			query{`sum by (policy, result) (rate(breakwater_fallback_cache_lookups_total{@}[$__rate_interval]))`, "{{policy}} {{result}}"}),
		b.graph("Remembered values: oldest served", "Of the values that were served past their freshness since the start, the age of the oldest in any instance.", seconds,
			query{`max by (policy) (breakwater_fallback_cache_oldest_age_seconds{@})`, "{{policy}}"}),
		b.graph("Remembered values: loads", "Begun, failed, and entries dropped to make room.", perSecond,
			query{`sum by (policy) (rate(breakwater_fallback_cache_loads_total{@}[$__rate_interval]))`, "{{policy}} begun"},
			query{`sum by (policy) (rate(breakwater_fallback_cache_load_failures_total{@}[$__rate_interval]))`, "{{policy}} failed"},
			query{`sum by (policy) (rate(breakwater_fallback_cache_evicted_total{@}[$__rate_interval]))`, "{{policy}} dropped"}),
		b.graph("Remembered values: entries", "Values and errors, in all instances.", count,
			query{`sum by (policy) (breakwater_fallback_cache_entries{@})`, "{{policy}}"}),
		b.stacked("Work put into a queue", "Tasks by what became of them.",
			query{`sum by (policy, result) (rate(breakwater_fallback_deferred_total{@}[$__rate_interval]))`, "{{policy}} {{result}}"}),
		b.graph("The queue's client", "Tasks that were sent and not confirmed yet, instances with a connection, and connections made anew.", count,
			query{`sum by (policy) (breakwater_fallback_defer_in_flight{@})`, "{{policy}} in flight"},
			query{`sum by (policy) (breakwater_fallback_defer_connected{@})`, "{{policy}} connected"},
			query{`sum by (policy) (increase(breakwater_fallback_defer_reconnects_total{@}[$__rate_interval]))`, "{{policy}} anew"}),
	)
}

func (b board) bulkheads(d *dashboard.DashboardBuilder) {
	row(d, "Bulkheads and their queues",
		b.graph("In flight against the limit", "Of all instances together. An adaptive limit moves.", count,
			query{`sum by (policy) (breakwater_bulkhead_in_flight{@})`, "{{policy}} in flight"},
			query{`sum by (policy) (breakwater_bulkhead_limit{@})`, "{{policy}} limit"},
			query{`sum by (policy) (breakwater_bulkhead_high_water{@})`, "{{policy}} most ever"}),
		b.graph("Permits in use", "In flight as a share of the limit, in the fullest instance and on average.", share,
			query{`max by (policy) (breakwater_bulkhead_in_flight{@} / breakwater_bulkhead_limit{@})`, "{{policy}} fullest"},
			query{`avg by (policy) (breakwater_bulkhead_in_flight{@} / breakwater_bulkhead_limit{@})`, "{{policy}} mean"}),
		b.graph("Callers that wait", "In the queues of all instances, how many ever did, and how many may.", count,
			query{`sum by (policy) (breakwater_bulkhead_waiting{@})`, "{{policy}}"},
			query{`sum by (policy) (breakwater_bulkhead_queue_high_water{@})`, "{{policy}} most ever"},
			query{`sum by (policy) (breakwater_bulkhead_queue_limit{@})`, "{{policy}} limit"}),
		b.graph("Workers", "Goroutines of pools, those of them whose callers have left, and whether the queue is shed.", count,
			query{`sum by (policy) (breakwater_bulkhead_workers{@})`, "{{policy}} workers"},
			query{`sum by (policy) (breakwater_bulkhead_orphans{@})`, "{{policy}} orphans"},
			query{`sum by (policy) (breakwater_bulkhead_overloaded{@})`, "{{policy}} shedding"}),
		b.graph("Calls that pools lost", "Callers that left while their function ran, calls whose context ended in the queue, panics that nobody heard of.", perSecond,
			query{`sum by (policy) (rate(breakwater_bulkhead_abandoned_total{@}[$__rate_interval]))`, "{{policy}} left"},
			query{`sum by (policy) (rate(breakwater_bulkhead_expired_total{@}[$__rate_interval]))`, "{{policy}} expired in the queue"},
			query{`sum by (policy) (rate(breakwater_bulkhead_orphan_panics_total{@}[$__rate_interval]))`, "{{policy}} panics nobody heard of"}),
		b.graph("Run by callers, limits found anew", "Functions that callers ran themselves, the queue being full; and how often an adaptive limit started over.", perSecond,
			query{`sum by (policy) (rate(breakwater_bulkhead_caller_runs_total{@}[$__rate_interval]))`, "{{policy}} run by callers"},
			query{`sum by (policy) (rate(breakwater_bulkhead_rebased_total{@}[$__rate_interval]))`, "{{policy}} found anew"}),
	)
}

func (b board) limiters(d *dashboard.DashboardBuilder) {
	row(d, "Rate limits and lanes",
		b.graph("Attempts against the rate", "Attempts that were let in, and tokens that come back, a second, of all instances together. Of a keyed limit, the tokens of one key.", perSecond,
			query{`sum(rate(breakwater_attempts_total{@,outcome!="not_run"}[$__rate_interval]))`, "attempts"},
			query{`sum by (policy) (breakwater_ratelimit_rate{@})`, "{{policy}} rate"}),
		b.graph("Tokens", "Left now, in the instance that has least, and how many there may be. Below zero they are promised to callers that wait.", count,
			query{`min by (policy) (breakwater_ratelimit_tokens{@})`, "{{policy}}"},
			query{`min by (policy) (breakwater_ratelimit_burst{@})`, "{{policy}} burst"}),
		b.graph("Callers that wait", "Of all instances, and how many may.", count,
			query{`sum by (policy) (breakwater_ratelimit_waiting{@})`, "{{policy}}"},
			query{`sum by (policy) (breakwater_ratelimit_queue_limit{@})`, "{{policy}} limit"}),
		b.graph("Delay", "How long a caller that came now would wait, and how long the dependency wants to be left alone: the longest of all instances.", seconds,
			query{`max by (policy) (breakwater_ratelimit_delay_seconds{@})`, "{{policy}} wait"},
			query{`max by (policy) (breakwater_ratelimit_drain_seconds{@})`, "{{policy}} left alone"}),
		b.graph("Slowed down by the dependency", "Answers that asked for it, and times the rate was lowered.", perSecond,
			query{`sum by (policy) (rate(breakwater_ratelimit_pushbacks_total{@}[$__rate_interval]))`, "{{policy}} answers"},
			query{`sum by (policy) (rate(breakwater_ratelimit_decreases_total{@}[$__rate_interval]))`, "{{policy}} lowered"}),
		b.graph("Lanes: calls", "Let in and refused, by lane.", perSecond,
			query{`sum by (policy, lane) (rate(breakwater_ratelimit_lane_admitted_total{@}[$__rate_interval]))`, "{{lane}} admitted"},
			query{`sum by (policy, lane) (rate(breakwater_ratelimit_lane_rejected_total{@}[$__rate_interval]))`, "{{lane}} refused"}),
		b.graph("Lanes: callers that wait", "By lane.", count,
			query{`sum by (policy, lane) (breakwater_ratelimit_lane_waiting{@})`, "{{lane}}"}),
		b.graph("Lanes: delay", "How long a caller that came now would wait: the longest of all instances.", seconds,
			query{`max by (policy, lane) (breakwater_ratelimit_lane_delay_seconds{@})`, "{{lane}}"}),
		b.graph("Lanes: tokens borrowed", "Taken from what other lanes did not need.", perSecond,
			query{`sum by (policy, lane) (rate(breakwater_ratelimit_lane_borrowed_tokens_total{@}[$__rate_interval]))`, "{{lane}}"}),
		b.graph("Several limits: refusals", "Which of the limits refused.", perSecond,
			query{`sum by (policy, part) (rate(breakwater_ratelimit_part_rejected_total{@}[$__rate_interval]))`, "{{policy}} {{part}}"}),
		b.graph("Several limits: tokens", "Left of each, in the instance that has least.", count,
			query{`min by (policy, part) (breakwater_ratelimit_part_tokens{@})`, "{{policy}} {{part}}"}),
		b.graph("Several limits: rates", "Tokens that come back, of each, in all instances together.", perSecond,
			query{`sum by (policy, part) (breakwater_ratelimit_part_rate{@})`, "{{policy}} {{part}}"}),
	)
}

func (b board) shared(d *dashboard.DashboardBuilder) {
	row(d, "Limits that processes share",
		b.graph("Modes", "Instances in each. shared: the store decides. local: each decides about its part. allow, deny: the store is away, and every call or none is let in.", count,
			query{`sum by (policy, mode) (breakwater_ratelimit_shared_mode{@})`, "{{policy}} {{mode}}"}),
		b.graph("Questions to the store", "Asked, failed, and calls that were decided without it.", perSecond,
			query{`sum by (policy) (rate(breakwater_ratelimit_shared_round_trips_total{@}[$__rate_interval]))`, "{{policy}} asked"},
			query{`sum by (policy) (rate(breakwater_ratelimit_shared_errors_total{@}[$__rate_interval]))`, "{{policy}} failed"},
			query{`sum by (policy) (rate(breakwater_ratelimit_shared_stood_in_total{@}[$__rate_interval]))`, "{{policy}} decided without"}),
		b.graph("Time of a question", "The mean of those that were answered.", seconds,
			query{mean("breakwater_ratelimit_shared_round_trip_seconds", "policy"), "{{policy}}"}),
		b.graph("Answered from tokens taken ahead", "Calls that did not have to ask.", perSecond,
			query{`sum by (policy) (rate(breakwater_ratelimit_shared_lease_hits_total{@}[$__rate_interval]))`, "{{policy}}"}).Span(half),
		b.graph("Tokens taken ahead", "Held now, in all instances.", count,
			query{`sum by (policy) (breakwater_ratelimit_shared_leased_tokens{@})`, "{{policy}}"}).Span(half),
	)
}

func (b board) keys(d *dashboard.DashboardBuilder) {
	row(d, "Keys",
		b.graph("Keys", "In the tables of keyed breakers and keyed limits, of all instances.", count,
			query{`sum by (policy) (breakwater_breaker_keys{@})`, "{{policy}} breakers"},
			query{`sum by (policy) (breakwater_breaker_open_keys{@})`, "{{policy}} open"},
			query{`sum by (policy) (breakwater_ratelimit_keys{@})`, "{{policy}} limits"}),
		b.graph("Keys cut off", "Open, half-open or forced open, as a share of those in the table.", share,
			query{`sum by (policy) (breakwater_breaker_open_keys{@}) / sum by (policy) (breakwater_breaker_keys{@})`, "{{policy}}"}),
		b.graph("Tables that are full", "Keys forgotten, openings that MaxOpenShare prevented, calls that shared a limit because there was no room.", perSecond,
			query{`sum by (policy) (rate(breakwater_breaker_evicted_keys_total{@}[$__rate_interval]))`, "{{policy}} forgotten"},
			query{`sum by (policy) (rate(breakwater_breaker_capped_openings_total{@}[$__rate_interval]))`, "{{policy}} kept closed"},
			query{`sum by (policy) (rate(breakwater_ratelimit_overflowed_total{@}[$__rate_interval]))`, "{{policy}} no room"}),
	)
}

func (b board) shedding(d *dashboard.DashboardBuilder) {
	row(d, "Load shedding",
		b.stacked("Calls shed", "By priority, the lowest first to go.",
			query{`sum by (priority) (rate(breakwater_ratelimit_shed_total{@}[$__rate_interval]))`, "{{priority}}"}),
		b.graph("CPU", "Last reading, in the instance that has most; 1 is all there is.", share,
			query{`max by (policy) (breakwater_ratelimit_cpu_ratio{@})`, "{{policy}}"},
			query{`max by (policy) (breakwater_ratelimit_overloaded{@})`, "{{policy}} sheds"}),
		b.graph("Queue delay", "Last reading, the longest of all instances.", seconds,
			query{`max by (policy) (breakwater_ratelimit_queue_delay_seconds{@})`, "{{policy}}"}),
		b.graph("In flight against the limit", "The limit holds while load is shed; 0 while nothing is known.", count,
			query{`sum by (policy) (breakwater_ratelimit_load_in_flight{@})`, "{{policy}} in flight"},
			query{`sum by (policy) (breakwater_ratelimit_load_limit{@})`, "{{policy}} limit"}).Span(half),
		b.graph("Readings that failed", "Of CPU and of the queue delay. Without them nothing is shed.", perSecond,
			query{`sum by (policy) (rate(breakwater_ratelimit_reading_failures_total{@}[$__rate_interval]))`, "{{policy}}"}).Span(half),
	)
}
