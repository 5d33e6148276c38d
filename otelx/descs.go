package otelx

import "github.com/prometheus/client_golang/prometheus"

// descs describes every metric of a [Collector].
type descs struct {
	calls, attempts, retries     *prometheus.Desc
	panics, discarded, abandoned *prometheus.Desc
	duration                     *prometheus.Desc
	rejections, shadowRejections *prometheus.Desc
	gateInfo                     *prometheus.Desc

	// of breakers
	state, opened, retryAfter, share *prometheus.Desc
	windowCalls, failureRatio        *prometheus.Desc
	slowRatio, consecutive, spared   *prometheus.Desc
	breakerKeys, openKeys            *prometheus.Desc
	evicted, capped                  *prometheus.Desc

	// of bulkheads
	inFlight, limit, highWater      *prometheus.Desc
	waiting, wait, rebased          *prometheus.Desc
	workers, orphans, shedding, run *prometheus.Desc
	left, expired, callerRan        *prometheus.Desc
	orphanPanics                    *prometheus.Desc

	// of limiters
	tokens, rate, limiterWaiting, delay       *prometheus.Desc
	limiterKeys, overflowed                   *prometheus.Desc
	drain, pushbacks, decreases               *prometheus.Desc
	laneWaiting, laneAdmitted                 *prometheus.Desc
	laneRejected, laneBorrowed                *prometheus.Desc
	overloaded, cpu, queueDelay, loadInFlight *prometheus.Desc
	loadLimit, readings, shed                 *prometheus.Desc

	stops, budgetRemaining *prometheus.Desc
	fallbacks              *prometheus.Desc
	failures               *prometheus.Desc

	all []*prometheus.Desc
}

func newDescs() *descs {
	d := &descs{}
	metric := func(name, help string, labels ...string) *prometheus.Desc {
		desc := prometheus.NewDesc("breakwater_"+name, help, labels, nil)
		d.all = append(d.all, desc)
		return desc
	}
	pipeline := func(name, help string, labels ...string) *prometheus.Desc {
		return metric(name, help, append([]string{"dependency"}, labels...)...)
	}
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return pipeline(name, help, append([]string{"policy"}, labels...)...)
	}

	d.calls = pipeline("calls_total", "Finished calls by the outcome of their last attempt; not_run is refused, or cancelled before it began.", "outcome")
	d.attempts = pipeline("attempts_total", "Attempts by outcome; not_run is refused.", "outcome")
	d.retries = pipeline("retries_total", "Attempts after the first one of their call.")
	d.panics = pipeline("panics_total", "Attempts that ended in a panic or ended their goroutine.")
	d.discarded = pipeline("discarded_total", "Outcomes that a policy ignored because they came too late.")
	d.abandoned = pipeline("abandoned_total", "Responses whose body nobody closed.")
	d.duration = pipeline("attempt_duration_seconds", "Durations of attempts that ran, without the time they waited in the pipeline.")

	d.rejections = of("rejections_total", "Attempts that a gate refused.", "reason")
	d.shadowRejections = of("shadow_rejections_total", "Attempts that a gate in shadow mode would have refused.", "reason")
	d.gateInfo = of("gate_info", "Always 1: the kind of a gate, and whether it enforces its decisions, is in shadow mode or was told to observe.", "kind", "mode")
	d.ofBreakers(of)
	d.ofBulkheads(of)
	d.ofLimiters(of)

	d.stops = of("retry_stops_total", "Calls that failed and were not tried again, by what stopped them.", "stop")
	d.budgetRemaining = of("retry_budget_remaining", "Retries that the budget allows now.")

	d.fallbacks = of("fallbacks_total", "Times the fallback was asked: it answered (served) or could not (failed).", "result")

	d.failures = metric("snapshot_failures_total", "Snapshots of a pipeline that failed with a panic in a policy; the pipeline is missing from that scrape.")
	return d
}

// makeDesc makes the description of a metric of policies.
type makeDesc func(name, help string, labels ...string) *prometheus.Desc

func (d *descs) ofBreakers(of makeDesc) {
	d.state = of("breaker_state", "1 for the state the breaker is in, 0 for the others; of a keyed breaker, the state of its worst key.", "state")
	d.share = of("breaker_admitted_ratio", "Share of calls that the breaker lets through, apart from probes; of a keyed breaker, the mean of its keys.")
	d.opened = of("breaker_opened_total", "Times the breaker opened, or the throttle began to refuse.")
	d.retryAfter = of("breaker_retry_after_seconds", "Time until an open breaker lets a probe through, or a forced one is released; 0 when neither.")
	d.windowCalls = of("breaker_window_calls", "Calls in the breaker's window; while open, those that opened it; while half-open, the probes that have ended.")
	d.failureRatio = of("breaker_window_failure_ratio", "Share of breaker_window_calls that failed.")
	d.slowRatio = of("breaker_window_slow_ratio", "Share of breaker_window_calls that were slow.")
	d.consecutive = of("breaker_consecutive_failures", "Failed calls since the last one that succeeded; of a keyed breaker, the most of any key.")
	d.spared = of("breaker_spared_total", "Calls let through because the breaker was told to observe, which it would have refused.")
	d.breakerKeys = of("breaker_keys", "Keys that a keyed breaker remembers.")
	d.openKeys = of("breaker_open_keys", "Keys whose breaker is open, half-open or forced open.")
	d.evicted = of("breaker_evicted_keys_total", "Keys that a keyed breaker has forgotten.")
	d.capped = of("breaker_capped_openings_total", "Keys that were kept closed because too many others were open.")
}

func (d *descs) ofBulkheads(of makeDesc) {
	d.inFlight = of("bulkhead_in_flight", "Permits taken, or functions on workers.")
	d.limit = of("bulkhead_limit", "Permits there are, or workers there may be.")
	d.highWater = of("bulkhead_high_water", "Most that were ever in flight at once.")
	d.waiting = of("bulkhead_waiting", "Callers that wait.")
	d.wait = of("bulkhead_wait_seconds", "Times that attempts stood in the queue, whatever became of them; without those that found room at once.")
	d.rebased = of("bulkhead_rebased_total", "Times the limit was found anew from the start.")
	d.workers = of("bulkhead_workers", "Goroutines of the pool, idle ones included.")
	d.orphans = of("bulkhead_orphans", "Functions on workers whose callers have left.")
	d.shedding = of("bulkhead_overloaded", "1 while the pool's queue has not been empty for long and is shed.")
	d.run = of("bulkhead_run_seconds", "Times that functions ran on workers, until their own end.")
	d.left = of("bulkhead_abandoned_total", "Callers that left while their function ran.")
	d.expired = of("bulkhead_expired_total", "Calls whose context ended in the queue; they never ran.")
	d.callerRan = of("bulkhead_caller_runs_total", "Functions that their own callers ran because the queue was full.")
	d.orphanPanics = of("bulkhead_orphan_panics_total", "Panics of functions whose callers had left: nobody was told.")
}

func (d *descs) ofLimiters(of makeDesc) {
	d.tokens = of("ratelimit_tokens", "Tokens available; negative while they are reserved ahead.")
	d.rate = of("ratelimit_rate", "Tokens that become available per second; of a keyed limiter, to each key.")
	d.limiterWaiting = of("ratelimit_waiting", "Callers that wait for tokens.")
	d.delay = of("ratelimit_delay_seconds", "How long a caller that came now would have to wait.")
	d.limiterKeys = of("ratelimit_keys", "Keys that a keyed limiter remembers.")
	d.overflowed = of("ratelimit_overflowed_total", "Calls that had to share a limit because there was no room for their key.")
	d.drain = of("ratelimit_drain_seconds", "Time until calls are let in again after the dependency asked for none; 0 when they are.")
	d.pushbacks = of("ratelimit_pushbacks_total", "Answers in which the dependency asked to slow down.")
	d.decreases = of("ratelimit_decreases_total", "Times the rate was lowered.")
	d.laneWaiting = of("ratelimit_lane_waiting", "Callers that wait in the lane.", "lane")
	d.laneAdmitted = of("ratelimit_lane_admitted_total", "Calls that the lane let in.", "lane")
	d.laneRejected = of("ratelimit_lane_rejected_total", "Calls that the lane refused.", "lane")
	d.laneBorrowed = of("ratelimit_lane_borrowed_tokens_total", "Tokens taken from what other lanes did not need.", "lane")
	d.overloaded = of("ratelimit_overloaded", "1 while load is shed.")
	d.cpu = of("ratelimit_cpu_ratio", "Last reading of the CPU, 1 is all there is; 0 when it is not read.")
	d.queueDelay = of("ratelimit_queue_delay_seconds", "Last reading of the queue delay; 0 when it is not read.")
	d.loadInFlight = of("ratelimit_load_in_flight", "Calls in flight.")
	d.loadLimit = of("ratelimit_load_limit", "Calls that may be in flight while load is shed; 0 while nothing is known.")
	d.readings = of("ratelimit_reading_failures_total", "Readings of the load that failed.")
	d.shed = of("ratelimit_shed_total", "Calls refused to shed load, by their priority.", "priority")
}
