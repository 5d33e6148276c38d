package otelx

import "github.com/prometheus/client_golang/prometheus"

// descs describes every metric of a [Collector].
type descs struct {
	calls, attempts, retries             *prometheus.Desc
	panics, discarded, abandoned         *prometheus.Desc
	duration                             *prometheus.Desc
	rejections, shadowRejections         *prometheus.Desc
	gateInfo                             *prometheus.Desc
	state, opened, retryAfter            *prometheus.Desc
	windowCalls, failureRatio, slowRatio *prometheus.Desc
	probes                               *prometheus.Desc
	inFlight, limit, highWater           *prometheus.Desc
	waiting, maxWaiters                  *prometheus.Desc
	tokens, burst, rate                  *prometheus.Desc
	stops, budgetRemaining, budgetRatio  *prometheus.Desc
	fallbacks                            *prometheus.Desc
	failures                             *prometheus.Desc

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
	d.gateInfo = of("gate_info", "Always 1: the kind of a gate, and whether it enforces its decisions or is in shadow mode.", "kind", "mode")

	d.state = of("breaker_state", "1 for the state the breaker is in, 0 for the others.", "state")
	d.opened = of("breaker_opened_total", "Times the breaker opened.")
	d.retryAfter = of("breaker_retry_after_seconds", "Time until an open breaker lets a probe through; 0 when it is not open.")
	d.windowCalls = of("breaker_window_calls", "Calls in the breaker's window; while open, those that opened it; while half-open, the probes that have ended.")
	d.failureRatio = of("breaker_window_failure_ratio", "Share of breaker_window_calls that failed.")
	d.slowRatio = of("breaker_window_slow_ratio", "Share of breaker_window_calls that were slow.")
	d.probes = of("breaker_probes_in_flight", "Probes of a half-open breaker that have not come back.")

	d.inFlight = of("bulkhead_in_flight", "Permits taken.")
	d.limit = of("bulkhead_limit", "Permits there are.")
	d.highWater = of("bulkhead_high_water", "Most permits ever taken at once.")
	d.waiting = of("bulkhead_waiting", "Callers waiting for a permit.")
	d.maxWaiters = of("bulkhead_max_waiters", "Callers that may wait for a permit at once.")

	d.tokens = of("ratelimit_tokens", "Tokens available; negative while they are reserved ahead.")
	d.burst = of("ratelimit_burst", "Most tokens that can be available.")
	d.rate = of("ratelimit_rate", "Tokens that become available per second.")

	d.stops = of("retry_stops_total", "Calls that failed and were not tried again, by what stopped them.", "stop")
	d.budgetRemaining = of("retry_budget_remaining", "Retries that the budget allows now.")
	d.budgetRatio = of("retry_budget_ratio", "Retries that the budget allows as a share of first attempts.")

	d.fallbacks = of("fallbacks_total", "Times the fallback was asked: it answered (served) or could not (failed).", "result")

	d.failures = metric("snapshot_failures_total", "Snapshots of a pipeline that failed with a panic in a policy; the pipeline is missing from that scrape.")
	return d
}
