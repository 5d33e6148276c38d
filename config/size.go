package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Measured is what [Size] reckons from: figures of a dependency, and what is wanted of it.
// Zero means that it is not known, or as the field says.
type Measured struct {
	// Rate is the rate of calls in the busiest hour, per second and process.
	Rate float64

	// Latency is the mean time of a call, P99 the time that one in a hundred exceeds.
	Latency, P99 time.Duration

	// Quota is what the dependency allows all processes together, per second.
	Quota float64

	// NodeLimit is what one process may be sent, per second, as a load test has found.
	NodeLimit float64

	// Nodes is the number of processes. Zero means 1.
	Nodes int

	// Wait is the longest acceptable wait in a queue. Zero means that nobody waits.
	Wait time.Duration

	// Best is the number of calls at a time at which a load test found the highest
	// throughput; see [BestConcurrency].
	Best int

	// Refused is the share of calls that may be refused in ordinary times because calls
	// come at random, in (0, 1). Zero means 0.01.
	Refused float64
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (m Measured) Validate() error {
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: "size", Field: field, Value: value, Want: want})
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"Rate", m.Rate}, {"Quota", m.Quota}, {"NodeLimit", m.NodeLimit}} {
		if !(f.value >= 0 && f.value <= 1e12) {
			fail(f.name, f.value, "want 0 (not known) to 1e12 per second")
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Latency", m.Latency}, {"P99", m.P99}, {"Wait", m.Wait}} {
		if f.value != 0 && (f.value < time.Microsecond || f.value > 24*time.Hour) {
			fail(f.name, f.value, "want 1µs to 24h, or 0 (not known)")
		}
	}
	if m.Nodes < 0 || m.Nodes > 1_000_000 {
		fail("Nodes", m.Nodes, "want 0 (1) to 1000000")
	}
	if m.Best < 0 || m.Best > 1_000_000 {
		fail("Best", m.Best, "want 0 (not known) to 1000000")
	}
	if !(m.Refused >= 0 && m.Refused < 1) {
		fail("Refused", m.Refused, "want 0 (0.01) to below 1")
	}
	if m.Rate == 0 && m.Quota == 0 && m.NodeLimit == 0 && m.Best == 0 {
		errs = append(errs, &policy.ConfigError{Policy: "size", Want: "want at least one of Rate, Quota, NodeLimit and Best"})
	}
	if m.Rate > 0 && m.Quota == 0 && m.NodeLimit == 0 && m.Best == 0 && m.Latency == 0 && m.P99 == 0 {
		fail("Latency", m.Latency, "want the mean time of a call: nothing follows from a rate alone")
	}
	return errors.Join(errs...)
}

// Sizing is what [Size] recommends.
type Sizing struct {
	// Figures are the recommended numbers, each with how it came about.
	Figures []Figure

	// Policies is a list of policies for a dependency of breakwater.yaml.
	Policies string
}

// Figure is a number of a [Sizing].
type Figure struct {
	Name  string // such as "concurrency"
	Value float64
	Unit  string // such as "per second"; empty for a plain number
	How   string // the arithmetic
}

// Size reckons limits from measured figures: how many calls at a time (Little's law, with
// headroom after Erlang's formula B), how many workers and how long a queue, and which
// rate, for this process and for all.
func Size(m Measured) (*Sizing, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.Nodes == 0 {
		m.Nodes = 1
	}
	if m.Refused == 0 {
		m.Refused = 0.01
	}
	s := &Sizing{}
	add := func(name string, value float64, unit, how string, args ...any) float64 {
		s.Figures = append(s.Figures, Figure{name, value, unit, fmt.Sprintf(how, args...)})
		return value
	}

	rate, all := 0.0, 0.0 // that one process may send, and all of them
	if m.Quota > 0 {
		fleet := add("fleet limit", 0.8*m.Quota, "per second", "%g × 0.8: 20 %% are left for clocks that differ and for others", m.Quota)
		rate = add("local share", fleet/float64(m.Nodes), "per second", "%g / %d: the limit of each process while they cannot share one", fleet, m.Nodes)
		all = fleet
	}
	if m.NodeLimit > 0 {
		fleet := add("fleet limit by node", m.NodeLimit*float64(m.Nodes)*0.8, "per second", "%g × %d × 0.8", m.NodeLimit, m.Nodes)
		share := add("local share by node", fleet/float64(m.Nodes), "per second", "%g / %d", fleet, m.Nodes)
		if rate == 0 || share < rate {
			rate, all = share, fleet
		}
	}

	concurrency := 0
	if busy := m.offered(rate) * m.Latency.Seconds(); busy > 0 {
		add("in flight on average", busy, "", "%g per second × %v (Little's law)", m.offered(rate), m.Latency)
		slots := int(math.Ceil(busy - 1e-9))
		add("refused without headroom", 100*bulkhead.RefusedShare(busy, slots), "%", "%d at a time for %.4g on average, of random arrivals (Erlang B)", slots, busy)
		concurrency = max(2, bulkhead.LimitFor(m.offered(rate), m.Latency, m.Refused))
		add("concurrency", float64(concurrency), "", "refuses at most %.3g %% of random arrivals (Erlang B)", 100*m.Refused)
	}
	workers := 0
	if m.Best > 0 {
		low, high := int(math.Ceil(0.8*float64(m.Best))), m.Best
		workers = max(2, high)
		add("workers", float64(workers), "", "80 to 100 %% of the best concurrency of %d: %d to %d", m.Best, low, high)
		add("workers at most", math.Floor(1.5*float64(m.Best)), "", "120 to 150 %% of it: %d to %d", int(1.2*float64(m.Best)), int(1.5*float64(m.Best)))
	}
	queue := 0
	if n := max(workers, concurrency); m.Wait > 0 && n > 0 && m.Latency > 0 {
		if workers > 0 {
			n = workers
		}
		throughput := float64(n) / m.Latency.Seconds()
		queue = bulkhead.QueueFor(throughput, m.Wait)
		add("queue", float64(queue), "", "%.4g per second (%d at %v) × %v of acceptable wait", throughput, n, m.Latency, m.Wait)
	}
	s.Policies = m.policies(rate, all, concurrency, workers, queue)
	return s, nil
}

// offered returns the calls per second of this process: those that come, or those that
// are let through if that is less or all that is known.
func (m Measured) offered(limit float64) float64 {
	if m.Rate == 0 || (limit > 0 && limit < m.Rate) {
		return limit
	}
	return m.Rate
}

// policies writes the policies down.
func (m Measured) policies(rate, all float64, concurrency, workers, queue int) string {
	var b strings.Builder
	room := concurrency
	if workers > 0 {
		room = workers
	}
	b.WriteString("policies:\n")
	longest := max(m.P99, m.Latency)
	if longest > 0 {
		attempt, of := roundUp(2*longest), "P99"
		if m.Latency > m.P99 { // not known, or of another time
			of = "mean, as no P99 is known"
		}
		if queue > 0 {
			fmt.Fprintf(&b, "  - timeout: {Total: %v, Attempt: %v} # twice the %s, and time for the queue\n", attempt+m.Wait, attempt, of)
		} else {
			fmt.Fprintf(&b, "  - timeout: {Attempt: %v} # twice the %s\n", attempt, of)
		}
	}
	if rate > 0 {
		burst := max(2, int(math.Ceil(rate)))
		if room > 0 {
			burst = min(burst, room+queue)
		}
		fmt.Fprintf(&b, "  - ratelimit: {Rate: %v, Burst: %d}\n", rateText(rate), burst)
		if m.Nodes > 1 {
			fmt.Fprintf(&b, "  # or one limit for all, of the kind that config/redisconfig adds:\n")
			fmt.Fprintf(&b, "  # - redis: {Limits: [{Rate: %v, Burst: %d}], Settings: {Nodes: %d}}\n", rateText(all), burst*m.Nodes, m.Nodes)
		}
	}
	switch {
	case workers > 0 && queue > 0:
		fmt.Fprintf(&b, "  - pool: {Workers: %d, Queue: %d, MaxWait: %v}\n", workers, queue, m.Wait)
	case workers > 0:
		fmt.Fprintf(&b, "  - pool: {Workers: %d, Queue: none}\n", workers)
	case concurrency > 0 && queue > 0:
		fmt.Fprintf(&b, "  - bulkhead: {Limit: %d, MaxWait: %v, MaxWaiters: %d}\n", concurrency, m.Wait, queue)
	case concurrency > 0:
		fmt.Fprintf(&b, "  - bulkhead: {Limit: %d}\n", concurrency)
	}
	if longest > 0 {
		fmt.Fprintf(&b, "  - breaker: {%s}\n", circuitFor(m.offered(rate), longest, room))
	}
	return b.String()
}

// rateText writes a rate as a file would.
func rateText(perSecond float64) string {
	return strings.ReplaceAll(ratelimit.PerSecond(perSecond).String(), " ", "")
}

// circuitFor returns the settings of a breaker whose window is filled in time: at the
// usual rate, and also when every call hangs until its timeout.
func circuitFor(offered float64, longest time.Duration, room int) string {
	const usual = 10 * time.Second
	minCalls, probes := 20, 3
	if offered > 0 && offered*usual.Seconds() < 20 {
		minCalls = 5
	}
	window := usual
	if offered > 0 {
		window = max(window, seconds(1.2*float64(minCalls)/offered))
	}
	if room > 0 {
		window = max(window, seconds(1.2*float64(minCalls)*2*longest.Seconds()/float64(room)))
		probes = min(probes, room)
	}
	extra := ""
	if probeTime := max(usual, window); offered > 0 && offered*usual.Seconds() < 3 {
		probes = 1
		extra = fmt.Sprintf(", ProbeTimeout: %v", roundUp(probeTime))
	}
	if probes < 3 {
		extra = fmt.Sprintf(", Probes: %d", probes) + extra
	}
	return fmt.Sprintf("FailureRatio: 0.5, SlowAfter: %v, SlowRatio: 0.5, Window: %v, MinCalls: %d%s", roundUp(longest*3/2), roundUp(window), minCalls, extra)
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e6) * float64(time.Second)) }

// roundUp rounds a duration up to two digits.
func roundUp(d time.Duration) time.Duration {
	unit := int64(1)
	for int64(d)/unit >= 100 {
		unit *= 10
	}
	return time.Duration((int64(d) + unit - 1) / unit * unit)
}
