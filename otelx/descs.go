package otelx

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is what a metric is: how its values behave and how those of several pipelines
// become one.
type kind uint8

const (
	counter      kind = iota // only rises; adds up
	updown                   // adds up
	gauge                    // the highest of several stands for all
	gaugeLow                 // the lowest of several stands for all
	distribution             // durations; adds up
)

// The importance of a metric: where a dependency has more series than it may, those of
// the last rank go first.
const (
	vital   int8 = iota // what happened to calls, and what is in the way of the next
	plain               // how much of what
	detail              // why
	trivial             // what few look for
)

// family is one metric. Both views of a registry, OpenTelemetry's and Prometheus', are
// made of the same ones.
type family struct {
	prom   string // its name in Prometheus, without breakwater_
	otel   string // its name in OpenTelemetry, without breakwater.
	kind   kind
	unit   string // UCUM
	rank   int8
	help   string
	labels []string // also those of the attributes, which have a prefix

	index int
	desc  *prometheus.Desc
}

// families is every metric there is.
type families struct {
	calls, attempts, retries     *family
	panics, discarded, abandoned *family
	duration, callDuration       *family
	rejections, shadowRejections *family
	gateInfo                     *family

	// of breakers
	state, opened, retryAfter, share *family
	windowCalls, failureRatio        *family
	slowRatio, consecutive, spared   *family
	breakerKeys, openKeys            *family
	evicted, capped                  *family

	// of bulkheads
	inFlight, limit, highWater      *family
	waiting, queueLimit, wait       *family
	mostWaiting                     *family
	rebased                         *family
	workers, orphans, shedding, run *family
	left, expired, callerRan        *family
	orphanPanics                    *family

	// of limiters
	tokens, burst, rate                       *family
	limiterWaiting, limiterQueue, delay       *family
	limiterKeys, overflowed                   *family
	drain, pushbacks, decreases               *family
	laneWaiting, laneDelay, laneAdmitted      *family
	laneRejected, laneBorrowed                *family
	partTokens, partRate, partRejected        *family
	overloaded, cpu, queueDelay, loadInFlight *family
	loadLimit, readings, shed                 *family
	sharedMode, stoodIn, sharedErrors         *family
	roundTrips, leaseHits, leased, sharedTime *family

	stops, budgetRemaining                          *family
	hedges, hedgesWon, hedgesSuppressed, hedgesShut *family
	hedgeDelay, hedgeBudget                         *family

	fallbacks                                      *family
	staleAge, lookups, loads, loadFailures         *family
	entries, cacheEvicted                          *family
	deferred, deferring, deferConnected, reconnect *family

	// of the registry and of the view itself
	configVersion, configLoads, configApplied *family
	omitted, folded, failures                 *family

	all []*family
}

// table is the one definition of all metrics.
var table = newFamilies()

// define makes the definition of a metric. Its name in Prometheus follows from the one
// in OpenTelemetry, its kind and its unit; both are here to be found.
type define func(prom, otel string, k kind, unit string, rank int8, help string, labels ...string) *family

func newFamilies() *families {
	f := &families{}
	metric := func(prom, otel string, k kind, unit string, rank int8, help string, labels ...string) *family {
		d := &family{
			prom: prom, otel: otel, kind: k, unit: unit, rank: rank, help: help, labels: labels,
			index: len(f.all), desc: prometheus.NewDesc("breakwater_"+prom, help, labels, nil),
		}
		f.all = append(f.all, d)
		return d
	}
	pipeline := func(prom, otel string, k kind, unit string, rank int8, help string, labels ...string) *family {
		return metric(prom, otel, k, unit, rank, help, slices.Concat([]string{"dependency"}, labels)...)
	}
	of := func(prom, otel string, k kind, unit string, rank int8, help string, labels ...string) *family {
		return pipeline(prom, otel, k, unit, rank, help, slices.Concat([]string{"policy"}, labels)...)
	}

	f.calls = pipeline("calls_total", "calls", counter, "{call}", vital, "Finished calls by the outcome of their last attempt; not_run is refused, or cancelled before it began.", "outcome")
	f.attempts = pipeline("attempts_total", "attempts", counter, "{attempt}", vital, "Attempts by outcome; not_run is refused.", "outcome")
	f.retries = pipeline("retries_total", "retries", counter, "{attempt}", vital, "Attempts after the first one of their call.")
	f.panics = pipeline("panics_total", "panics", counter, "{attempt}", plain, "Attempts that ended in a panic or ended their goroutine.")
	f.discarded = pipeline("discarded_total", "discarded", counter, "{outcome}", trivial, "Outcomes that a policy ignored because they came too late.")
	f.abandoned = pipeline("abandoned_total", "abandoned", counter, "{response}", vital, "Responses whose body nobody closed.")
	f.duration = pipeline("attempt_duration_seconds", "attempt.duration", distribution, "s", plain, "Durations of attempts that ran, without the time they waited in the pipeline.")
	f.callDuration = pipeline("call_duration_seconds", "call.duration", distribution, "s", plain, "Durations of calls that returned after an attempt that ran, with waits, retries and fallback.")

	f.rejections = of("rejections_total", "rejections", counter, "{attempt}", vital, "Attempts that a gate refused.", "reason")
	f.shadowRejections = of("shadow_rejections_total", "shadow.rejections", counter, "{attempt}", vital, "Attempts that a gate in shadow mode would have refused.", "reason")
	f.gateInfo = of("gate_info", "gate.info", updown, "{gate}", vital, "Always 1: the kind of a gate, and whether it enforces its decisions, is in shadow mode or was told to observe.", "kind", "mode")
	f.ofBreakers(of)
	f.ofBulkheads(of)
	f.ofLimiters(of)
	f.ofSharedLimiters(of)
	f.ofReactions(of)

	f.configVersion = metric("config_version", "config.version", gauge, "{version}", vital, "Number of the configuration in force; it rises by one with each that is applied.")
	f.configLoads = metric("config_loads_total", "config.loads", counter, "{load}", vital, "Configurations that were loaded, by what became of them.", "result")
	f.configApplied = metric("config_applied_timestamp_seconds", "config.applied.timestamp", gauge, "s", vital, "When the configuration in force was applied, in seconds since 1970.")
	f.omitted = pipeline("omitted_series", "omitted_series", updown, "{series}", vital, "Series that the dependency has and that are left out, as there are too many.")
	f.folded = metric("folded_dependencies", "folded_dependencies", updown, "{dependency}", vital, "Derived pipelines that are shown as one, with the dependency other.")
	f.failures = metric("snapshot_failures_total", "snapshot.failures", counter, "{snapshot}", vital, "Snapshots of a pipeline that failed with a panic in a policy; the pipeline is missing from that scrape.")
	return f
}

func (f *families) ofBreakers(of define) {
	f.state = of("breaker_state", "breaker.state", updown, "{breaker}", vital, "1 for the state the breaker is in, 0 for the others; of a keyed breaker, the state of its worst key.", "state")
	f.share = of("breaker_admitted_ratio", "breaker.admitted", gaugeLow, "1", plain, "Share of calls that the breaker lets through, apart from probes; of a keyed breaker, the mean of its keys.")
	f.opened = of("breaker_opened_total", "breaker.opened", counter, "{opening}", vital, "Times the breaker opened, or the throttle began to refuse.")
	f.retryAfter = of("breaker_retry_after_seconds", "breaker.retry_after", gauge, "s", plain, "Time until an open breaker lets a probe through, or a forced one is released; 0 when neither.")
	f.windowCalls = of("breaker_window_calls", "breaker.window.calls", updown, "{call}", detail, "Calls in the breaker's window; while open, those that opened it; while half-open, the probes that have ended.")
	f.failureRatio = of("breaker_window_failure_ratio", "breaker.window.failure", gauge, "1", plain, "Share of breaker_window_calls that failed.")
	f.slowRatio = of("breaker_window_slow_ratio", "breaker.window.slow", gauge, "1", detail, "Share of breaker_window_calls that were slow.")
	f.consecutive = of("breaker_consecutive_failures", "breaker.consecutive_failures", gauge, "{call}", detail, "Failed calls since the last one that succeeded; of a keyed breaker, the most of any key.")
	f.spared = of("breaker_spared_total", "breaker.spared", counter, "{call}", plain, "Calls let through because the breaker was told to observe, which it would have refused.")
	f.breakerKeys = of("breaker_keys", "breaker.keys", updown, "{key}", vital, "Keys that a keyed breaker remembers.")
	f.openKeys = of("breaker_open_keys", "breaker.open_keys", updown, "{key}", vital, "Keys whose breaker is open, half-open or forced open.")
	f.evicted = of("breaker_evicted_keys_total", "breaker.evicted_keys", counter, "{key}", trivial, "Keys that a keyed breaker has forgotten.")
	f.capped = of("breaker_capped_openings_total", "breaker.capped_openings", counter, "{opening}", detail, "Keys that were kept closed because too many others were open.")
}

func (f *families) ofBulkheads(of define) {
	f.inFlight = of("bulkhead_in_flight", "bulkhead.in_flight", updown, "{call}", vital, "Permits taken, or functions on workers.")
	f.limit = of("bulkhead_limit", "bulkhead.limit", updown, "{call}", vital, "Permits there are, or workers there may be.")
	f.highWater = of("bulkhead_high_water", "bulkhead.high_water", gauge, "{call}", detail, "Most that were ever in flight at once.")
	f.waiting = of("bulkhead_waiting", "bulkhead.waiting", updown, "{call}", vital, "Callers that wait.")
	f.queueLimit = of("bulkhead_queue_limit", "bulkhead.queue.limit", updown, "{call}", trivial, "Callers that may wait.")
	f.mostWaiting = of("bulkhead_queue_high_water", "bulkhead.queue.high_water", gauge, "{call}", trivial, "Most callers that ever waited at once.")
	f.wait = of("bulkhead_wait_seconds", "bulkhead.wait", distribution, "s", plain, "Times that attempts stood in the queue, whatever became of them; without those that found room at once.")
	f.rebased = of("bulkhead_rebased_total", "bulkhead.rebased", counter, "{time}", trivial, "Times the limit was found anew from the start.")
	f.workers = of("bulkhead_workers", "bulkhead.workers", updown, "{goroutine}", plain, "Goroutines of the pool, idle ones included.")
	f.orphans = of("bulkhead_orphans", "bulkhead.orphans", updown, "{call}", plain, "Functions on workers whose callers have left.")
	f.shedding = of("bulkhead_overloaded", "bulkhead.overloaded", updown, "{pool}", plain, "1 while the pool's queue has not been empty for long and is shed.")
	f.run = of("bulkhead_run_seconds", "bulkhead.run", distribution, "s", trivial, "Times that functions ran on workers, until their own end; of a pool of connections, times of statements, without the wait for a connection.")
	f.left = of("bulkhead_abandoned_total", "bulkhead.abandoned", counter, "{call}", detail, "Callers that left while their function ran.")
	f.expired = of("bulkhead_expired_total", "bulkhead.expired", counter, "{call}", detail, "Calls whose context ended in the queue; they never ran.")
	f.callerRan = of("bulkhead_caller_runs_total", "bulkhead.caller_runs", counter, "{call}", trivial, "Functions that their own callers ran because the queue was full.")
	f.orphanPanics = of("bulkhead_orphan_panics_total", "bulkhead.orphan_panics", counter, "{call}", vital, "Panics of functions whose callers had left: nobody was told.")
}

func (f *families) ofLimiters(of define) {
	f.tokens = of("ratelimit_tokens", "ratelimit.tokens", gaugeLow, "{token}", vital, "Tokens available; negative while they are reserved ahead.")
	f.burst = of("ratelimit_burst", "ratelimit.burst", gauge, "{token}", trivial, "Most tokens there can be.")
	f.rate = of("ratelimit_rate", "ratelimit.rate", gauge, "{token}/s", plain, "Tokens that become available per second; of a keyed limiter, to each key.")
	f.limiterWaiting = of("ratelimit_waiting", "ratelimit.waiting", updown, "{call}", plain, "Callers that wait for tokens.")
	f.limiterQueue = of("ratelimit_queue_limit", "ratelimit.queue.limit", updown, "{call}", trivial, "Callers that may wait for tokens.")
	f.delay = of("ratelimit_delay_seconds", "ratelimit.delay", gauge, "s", plain, "How long a caller that came now would have to wait.")
	f.limiterKeys = of("ratelimit_keys", "ratelimit.keys", updown, "{key}", plain, "Keys that a keyed limiter remembers.")
	f.overflowed = of("ratelimit_overflowed_total", "ratelimit.overflowed", counter, "{call}", vital, "Calls that had to share a limit because there was no room for their key.")
	f.drain = of("ratelimit_drain_seconds", "ratelimit.drain", gauge, "s", plain, "Time until calls are let in again after the dependency asked for none; 0 when they are.")
	f.pushbacks = of("ratelimit_pushbacks_total", "ratelimit.pushbacks", counter, "{answer}", plain, "Answers in which the dependency asked to slow down.")
	f.decreases = of("ratelimit_decreases_total", "ratelimit.decreases", counter, "{time}", detail, "Times the rate was lowered.")
	f.laneWaiting = of("ratelimit_lane_waiting", "ratelimit.lane.waiting", updown, "{call}", plain, "Callers that wait in the lane.", "lane")
	f.laneDelay = of("ratelimit_lane_delay_seconds", "ratelimit.lane.delay", gauge, "s", detail, "How long a caller that came into the lane now would have to wait.", "lane")
	f.laneAdmitted = of("ratelimit_lane_admitted_total", "ratelimit.lane.admitted", counter, "{call}", plain, "Calls that the lane let in.", "lane")
	f.laneRejected = of("ratelimit_lane_rejected_total", "ratelimit.lane.rejected", counter, "{call}", plain, "Calls that the lane refused.", "lane")
	f.laneBorrowed = of("ratelimit_lane_borrowed_tokens_total", "ratelimit.lane.borrowed_tokens", counter, "{token}", trivial, "Tokens taken from what other lanes did not need.", "lane")
	f.partTokens = of("ratelimit_part_tokens", "ratelimit.part.tokens", gaugeLow, "{token}", plain, "Tokens available of one of several limits.", "part")
	f.partRate = of("ratelimit_part_rate", "ratelimit.part.rate", gauge, "{token}/s", detail, "Tokens that become available per second of one of several limits.", "part")
	f.partRejected = of("ratelimit_part_rejected_total", "ratelimit.part.rejected", counter, "{call}", plain, "Calls that one of several limits refused.", "part")
	f.overloaded = of("ratelimit_overloaded", "ratelimit.overloaded", updown, "{limiter}", vital, "1 while load is shed.")
	f.cpu = of("ratelimit_cpu_ratio", "ratelimit.cpu", gauge, "1", plain, "Last reading of the CPU, 1 is all there is; 0 when it is not read.")
	f.queueDelay = of("ratelimit_queue_delay_seconds", "ratelimit.queue_delay", gauge, "s", detail, "Last reading of the queue delay; 0 when it is not read.")
	f.loadInFlight = of("ratelimit_load_in_flight", "ratelimit.load.in_flight", updown, "{call}", plain, "Calls in flight.")
	f.loadLimit = of("ratelimit_load_limit", "ratelimit.load.limit", updown, "{call}", plain, "Calls that may be in flight while load is shed; 0 while nothing is known.")
	f.readings = of("ratelimit_reading_failures_total", "ratelimit.reading_failures", counter, "{reading}", trivial, "Readings of the load that failed.")
	f.shed = of("ratelimit_shed_total", "ratelimit.shed", counter, "{call}", vital, "Calls refused to shed load, by their priority.", "priority")
}

func (f *families) ofSharedLimiters(of define) {
	f.sharedMode = of("ratelimit_shared_mode", "ratelimit.shared.mode", updown, "{limiter}", vital, "1 for the way in which a limit that processes share is decided, 0 for the others.", "mode")
	f.stoodIn = of("ratelimit_shared_stood_in_total", "ratelimit.shared.stood_in", counter, "{call}", plain, "Calls that were decided without the store, as it could not be asked.")
	f.sharedErrors = of("ratelimit_shared_errors_total", "ratelimit.shared.errors", counter, "{question}", plain, "Questions to the store that failed.")
	f.roundTrips = of("ratelimit_shared_round_trips_total", "ratelimit.shared.round_trips", counter, "{question}", plain, "Questions to the store.")
	f.leaseHits = of("ratelimit_shared_lease_hits_total", "ratelimit.shared.lease_hits", counter, "{call}", detail, "Calls answered from tokens taken ahead, without asking the store.")
	f.leased = of("ratelimit_shared_leased_tokens", "ratelimit.shared.leased_tokens", updown, "{token}", detail, "Tokens taken ahead that are held now.")
	f.sharedTime = of("ratelimit_shared_round_trip_seconds", "ratelimit.shared.round_trip", distribution, "s", detail, "Durations of questions to the store that were answered.")
}

// ofReactions defines what follows an attempt that did not succeed.
func (f *families) ofReactions(of define) {
	f.stops = of("retry_stops_total", "retry.stops", counter, "{call}", plain, "Calls that failed and were not tried again, by what stopped them.", "stop")
	f.budgetRemaining = of("retry_budget_remaining", "retry.budget.remaining", gaugeLow, "{attempt}", vital, "Retries that the budget allows now.")

	f.hedges = of("hedges_total", "hedges", counter, "{attempt}", vital, "Attempts that were started beside one that was slow.")
	f.hedgesWon = of("hedges_won_total", "hedges.won", counter, "{attempt}", plain, "Hedges whose answer the caller got.")
	f.hedgesSuppressed = of("hedges_suppressed_total", "hedges.suppressed", counter, "{attempt}", detail, "Hedges that were due, and for which the budget had none left.")
	f.hedgesShut = of("hedges_refused_total", "hedges.refused", counter, "{attempt}", detail, "Hedges that were due, and that a gate refused.")
	f.hedgeDelay = of("hedge_delay_seconds", "hedge.delay", gauge, "s", detail, "How long an attempt that begins now may run before it is hedged; 0 while none is.")
	f.hedgeBudget = of("hedge_budget_remaining", "hedge.budget.remaining", gaugeLow, "{attempt}", plain, "Hedges that the budget allows now.")

	f.fallbacks = of("fallbacks_total", "fallbacks", counter, "{call}", vital, "Times the fallback was asked: it answered (served), could not (failed), was kept from it by its own gate (rejected), or put another error in place (mapped).", "result")
	f.staleAge = of("fallback_cache_oldest_age_seconds", "fallback.cache.oldest_age", gauge, "s", plain, "Age of the oldest value served.")
	f.lookups = of("fallback_cache_lookups_total", "fallback.cache.lookups", counter, "{call}", plain, "Callers by what they found: a fresh value (hit), one past its freshness (stale), a remembered error (negative), or nothing (miss).", "result")
	f.loads = of("fallback_cache_loads_total", "fallback.cache.loads", counter, "{load}", detail, "Loads begun.")
	f.loadFailures = of("fallback_cache_load_failures_total", "fallback.cache.load_failures", counter, "{load}", detail, "Loads that ended in an error.")
	f.entries = of("fallback_cache_entries", "fallback.cache.entries", updown, "{entry}", detail, "Values and errors remembered.")
	f.cacheEvicted = of("fallback_cache_evicted_total", "fallback.cache.evicted", counter, "{entry}", trivial, "Entries dropped to make room.")
	f.deferred = of("fallback_deferred_total", "fallback.deferred", counter, "{task}", plain, "Tasks handed to the queue, by what became of them.", "result")
	f.deferring = of("fallback_defer_in_flight", "fallback.defer.in_flight", updown, "{task}", detail, "Tasks that were sent and neither accepted nor refused yet.")
	f.deferConnected = of("fallback_defer_connected", "fallback.defer.connected", updown, "{connection}", plain, "1 while the queue's client has a connection.")
	f.reconnect = of("fallback_defer_reconnects_total", "fallback.defer.reconnects", counter, "{connection}", trivial, "Connections to the queue that were made after the first.")
}
