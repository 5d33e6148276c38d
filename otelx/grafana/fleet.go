package grafana

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// fleet is the overview: what is open where, who refuses and why.
func fleet() *dashboard.DashboardBuilder {
	b := board{matchers: `job=~"$job"`, alerts: `job=~"$job"`}
	d := newDashboard(fleetUID, "Breakwater / Fleet", "What is open where, who refuses and why, in all services. A dependency in a table leads to its own dashboard.").
		WithVariable(allOf(labelValues("job", "Service", ""))).
		Link(link("One dependency", "States, outcomes and limits of one dependency", dependencyUID))
	marks(d, b)

	row(d, "Now",
		b.number("Dependencies", "Pipelines, each counted once for every service that has it.", count,
			`count(count by (job, dependency) (breakwater_calls_total{@}))`, 0, 0),
		b.number("Breakers that refuse", "Open, half-open or forced open, each counted once for every instance.", count,
			`sum(breakwater_breaker_state{@,state=~"open|half_open|forced_open"})`, 1, 5),
		b.number("Calls that fail", "Share of calls of the last five minutes that failed or were refused. Cancelled ones are left out.", share,
			`sum(rate(breakwater_calls_total{@,outcome!~"success|permanent|canceled"}[5m])) / sum(rate(breakwater_calls_total{@,outcome!="canceled"}[5m]))`, 0.01, 0.05),
		b.number("Attempts refused", "Share of attempts of the last five minutes that a gate refused.", share,
			`sum(rate(breakwater_rejections_total{@}[5m])) / sum(rate(breakwater_attempts_total{@}[5m]))`, 0.01, 0.05),
		b.number("Fallbacks served", "Share of calls of the last five minutes that a fallback answered.", share,
			`sum(rate(breakwater_fallbacks_total{@,result="served"}[5m])) / sum(rate(breakwater_calls_total{@}[5m]))`, 0.01, 0.1),
		b.number("Snapshots missing", "Pipelines that were missing from a scrape in the last hour, because a policy panicked in its Snapshot.", count,
			`sum(increase(breakwater_snapshot_failures_total{@}[1h]))`, 1, 10),
	)

	row(d, "What is open, and where",
		b.timeline("Worst state of each dependency", "Of all its breakers, in all instances, the state that keeps most away. A breaker that opened and closed between two scrapes shows as a mark only.",
			query{`max by (job, dependency) (` + stateCode() + `)`, "{{job}} / {{dependency}}"}),
		b.list("Breakers that are not closed", "Of a keyed breaker, the state of the key that is worst off. Admitted is the share of calls let through, apart from probes.", share,
			`sum by (job, instance, dependency, policy, state) (clamp_max(breakwater_breaker_state{@,state!="closed"} > 0, 1) * on (job, instance, dependency, policy) group_left breakwater_breaker_admitted_ratio{@})`,
			[]string{"job", "instance", "dependency", "policy", "state"}, "admitted"),
		b.list("Gates that do not decide by themselves", "Breakers that were forced or told to observe, and gates in shadow mode, with the number of instances. A command that nobody takes back is an outage in waiting.", count,
			`sum by (job, dependency, policy, state) (breakwater_breaker_state{@,state=~"forced_.*"}) > 0 or label_replace(sum by (job, dependency, policy, mode) (breakwater_gate_info{@,mode!="enforce"}), "state", "$1", "mode", "(.+)")`,
			[]string{"job", "dependency", "policy", "state"}, "instances"),
		b.list("Alerts that fire", "Those of the rules that come with this dashboard. Empty as well when the rules are not loaded.", count,
			`count by (alertname, severity, job, dependency, policy) (ALERTS{@,alertname=~"Breakwater.+",alertstate="firing"})`,
			[]string{"alertname", "severity", "job", "dependency", "policy"}, "alerts"),
		b.list("Breakers that open most often", "Openings in the last hour, of all instances together.", count,
			`topk(20, sum by (job, dependency, policy) (increase(breakwater_breaker_opened_total{@}[1h])) > 0)`,
			[]string{"job", "dependency", "policy"}, "opened"),
	)

	row(d, "Who refuses, and why",
		b.list("Refusals", "Share of the attempts of a dependency that a policy refused in the last five minutes, by reason.", share,
			`topk(50, sum by (job, dependency, policy, reason) (rate(breakwater_rejections_total{@}[5m])) / on (job, dependency) group_left sum by (job, dependency) (rate(breakwater_attempts_total{@}[5m])) > 0)`,
			[]string{"job", "dependency", "policy", "reason"}, "share"),
		b.stacked("Refusals by reason", "open: the dependency is away. concurrency, waiters, wait: too slow for the limit. rate, cost: too many calls.",
			query{`sum by (reason) (rate(breakwater_rejections_total{@}[$__rate_interval]))`, "{{reason}}"}).Span(half),
		b.graph("Share refused, of each dependency", "Attempts that a gate refused, as a share of all.", share,
			query{`sum by (job, dependency) (rate(breakwater_rejections_total{@}[$__rate_interval])) / sum by (job, dependency) (rate(breakwater_attempts_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}}"}).Span(half),
		b.graph("What shadow gates would refuse", "The calls ran. Look here before a gate is switched on.", perSecond,
			query{`sum by (job, dependency, policy, reason) (rate(breakwater_shadow_rejections_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}} {{policy}} {{reason}}"}).Span(half),
	)

	row(d, "Outcomes",
		b.graph("Calls", "Finished calls, refused ones included.", perSecond,
			query{`sum by (job, dependency) (rate(breakwater_calls_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}}"}),
		b.graph("Share that fails", "Calls that failed or were refused; cancelled ones are left out.", share,
			query{`sum by (job, dependency) (rate(breakwater_calls_total{@,outcome!~"success|permanent|canceled"}[$__rate_interval])) / sum by (job, dependency) (rate(breakwater_calls_total{@,outcome!="canceled"}[$__rate_interval]))`, "{{job}} / {{dependency}}"}),
		b.graph("p99 of attempts", "Without the time in queues and between retries. Read from buckets, so off by up to the width of one.", seconds,
			query{quantile("0.99", "breakwater_attempt_duration_seconds", "job, dependency"), "{{job}} / {{dependency}}"}),
		b.graph("Retries per call", "How much load the retries add to a dependency.", share,
			query{`sum by (job, dependency) (rate(breakwater_retries_total{@}[$__rate_interval])) / sum by (job, dependency) (rate(breakwater_calls_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}}"}),
		b.graph("Share answered by a fallback", "An outage that users do not see, and somebody should.", share,
			query{`sum by (job, dependency) (rate(breakwater_fallbacks_total{@,result="served"}[$__rate_interval])) / sum by (job, dependency) (rate(breakwater_calls_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}}"}),
		b.graph("Panics and bodies left open", "Faults in the code of the service: panics of functions, those that no caller heard of, and responses that nobody closed.", perSecond,
			query{`sum by (job, dependency) (rate(breakwater_panics_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}} panics"},
			query{`sum by (job, dependency) (rate(breakwater_bulkhead_orphan_panics_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}} panics nobody heard of"},
			query{`sum by (job, dependency) (rate(breakwater_abandoned_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}} bodies"}),
	)

	row(d, "Near a limit",
		b.graph("Permits in use, the fullest", "Calls in flight as a share of the limit, of all instances together.", share,
			query{`topk(10, sum by (job, dependency, policy) (breakwater_bulkhead_in_flight{@}) / sum by (job, dependency, policy) (breakwater_bulkhead_limit{@}))`, "{{job}} / {{dependency}} {{policy}}"}),
		b.graph("Callers that wait", "In queues of bulkheads and of rate limits.", count,
			query{`sum by (job, dependency, policy) (breakwater_bulkhead_waiting{@})`, "{{job}} / {{dependency}} {{policy}}"},
			query{`sum by (job, dependency, policy) (breakwater_ratelimit_waiting{@})`, "{{job}} / {{dependency}} {{policy}}"}),
		b.graph("Retry budgets, the emptiest", "Retries that the budget of an instance allows now: the least of all instances.", count,
			query{`bottomk(10, min by (job, dependency, policy) (breakwater_retry_budget_remaining{@}))`, "{{job}} / {{dependency}} {{policy}}"}),
		b.graph("Keys cut off", "Of keyed breakers: keys that are open, as a share of those in the table.", share,
			query{`sum by (job, dependency, policy) (breakwater_breaker_open_keys{@}) / sum by (job, dependency, policy) (breakwater_breaker_keys{@})`, "{{job}} / {{dependency}} {{policy}}"}),
		b.graph("Load shed", "Calls that services refused because they are overloaded themselves.", perSecond,
			query{`sum by (job, dependency, priority) (rate(breakwater_ratelimit_shed_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}} {{priority}}"}),
		b.graph("CPU as load shedding sees it", "The highest of all instances; 1 is all there is.", share,
			query{`max by (job, dependency) (breakwater_ratelimit_cpu_ratio{@})`, "{{job}} / {{dependency}}"}),
		b.graph("Hedges", "Attempts started beside a slow one.", perSecond,
			query{`sum by (job, dependency) (rate(breakwater_hedges_total{@}[$__rate_interval]))`, "{{job}} / {{dependency}}"}),
		b.graph("p99 of calls", "What callers waited, retries and queues included.", seconds,
			query{quantile("0.99", "breakwater_call_duration_seconds", "job, dependency"), "{{job}} / {{dependency}}"}),
		b.list("Shared limits that the store does not decide", "local: each process decides about its part. allow, deny: every call is let in, or none. With the number of instances.", count,
			`sum by (job, dependency, policy, mode) (breakwater_ratelimit_shared_mode{@,mode!="shared"}) > 0`,
			[]string{"job", "dependency", "policy", "mode"}, "instances").Span(third),
	)

	row(d, "Configuration and metrics",
		b.graph("Version of the configuration", "The lowest and the highest of all instances. It rises by one with each that an instance applies.", count,
			query{`min by (job) (breakwater_config_version{@})`, "{{job}} lowest"},
			query{`max by (job) (breakwater_config_version{@})`, "{{job}} highest"}),
		b.graph("Configurations loaded", "Applied and refused. After a refusal the one before stays in force.", count,
			query{`sum by (job, result) (increase(breakwater_config_loads_total{@}[$__rate_interval]))`, "{{job}} {{result}}"}),
		b.graph("Age of the configuration", "Time since the one in force was applied: the oldest and the youngest of all instances.", seconds,
			query{`time() - min by (job) (breakwater_config_applied_timestamp_seconds{@})`, "{{job}} oldest"},
			query{`time() - max by (job) (breakwater_config_applied_timestamp_seconds{@})`, "{{job}} youngest"}),
		b.list("Series left out", "Dependencies with more series than MaxSeries: what matters least is missing here and in their dashboard.", count,
			`max by (job, dependency) (breakwater_omitted_series{@}) > 0`,
			[]string{"job", "dependency"}, "series"),
		b.graph("Derived pipelines shown as other", "More than MaxDerived pipelines were made as they were needed; the rest is one dependency.", count,
			query{`max by (job) (breakwater_folded_dependencies{@})`, "{{job}}"}).Span(half),
	)
	return d
}
