package demo

import (
	"math"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// Report is what became of a run. Its JSON is the output of demo --json. Times are in
// seconds since the load began, durations in milliseconds, shares from 0 to 1.
//
// A request belongs to the phase in which it was sent. The incident is the phases
// slow and failing.
type Report struct {
	Unprotected World `json:"unprotected"`
	Protected   World `json:"protected"`

	// Transitions are those of all breakers, in order.
	Transitions []Transition `json:"transitions"`

	// Phases is what the stock dependency did.
	Phases []PhaseSpan `json:"phases"`

	For  float64 `json:"for_s"`       // how long the load lasted
	Rate int     `json:"offered_rps"` // requests per second, in each world
	Seed uint64  `json:"seed"`

	// RecoveredFrom is when the incident counts as over: 5 s after the dependency
	// began to recover, or half-way between that and the end of a shorter run.
	RecoveredFrom float64 `json:"recovered_from_s"`

	// Stalls is what the machine did to the demo.
	Stalls Stalls `json:"stalls"`

	// Interrupted says that the run was ended early. Requests without an answer at
	// that time are not counted.
	Interrupted bool `json:"interrupted"`
}

// World is what became of the requests in one world. An answer is real, a fallback,
// or failed: an error, or none within the 5 s that a user waits. Latencies are those
// of all three.
type World struct {
	Offered   int64 `json:"offered"`
	Real      int64 `json:"real"`
	Fallbacks int64 `json:"fallbacks"`
	Failed    int64 `json:"failed"`

	Goodput       float64 `json:"goodput_rps"` // real answers per second
	RealShare     float64 `json:"real_share"`
	FallbackShare float64 `json:"fallback_share"`
	FailedShare   float64 `json:"failed_share"`
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`

	// DependencyCalls is the number of calls that reached the stock dependency, by
	// its own count, for requests that arrived at the service in the incident, per
	// request.
	DependencyCalls float64 `json:"dependency_calls_per_offered"`

	// PeakGoroutines is the largest number of goroutines that the service held: for
	// its connections and handlers, and in the transports of its clients.
	PeakGoroutines int `json:"peak_goroutines"`

	// Latencies of /price, whose dependency is healthy.
	NeighbourP99         float64 `json:"neighbour_p99_ms"`
	NeighbourHealthyP99  float64 `json:"neighbour_healthy_p99_ms"`
	NeighbourIncidentP99 float64 `json:"neighbour_incident_p99_ms"`

	HealthyP99  float64 `json:"healthy_p99_ms"`
	IncidentP50 float64 `json:"incident_p50_ms"`
	IncidentP99 float64 `json:"incident_p99_ms"`

	// Real answers as a share of the requests: all of them, and those to /stock.
	HealthyReal        float64 `json:"healthy_real_share"`
	IncidentReal       float64 `json:"incident_real_share"`
	RecoveredReal      float64 `json:"recovered_real_share"`
	StockHealthyReal   float64 `json:"stock_healthy_real_share"`
	StockRecoveredReal float64 `json:"stock_recovered_real_share"`

	Phases  []WorldPhase `json:"phases"`
	Seconds []Second     `json:"seconds"`
}

// WorldPhase is the part of a [World] that is about the requests of one phase.
type WorldPhase struct {
	Phase           string  `json:"phase"`
	Offered         int64   `json:"offered"`
	Real            int64   `json:"real"`
	Fallbacks       int64   `json:"fallbacks"`
	Failed          int64   `json:"failed"`
	P50             float64 `json:"p50_ms"`
	P99             float64 `json:"p99_ms"`
	NeighbourP99    float64 `json:"neighbour_p99_ms"`
	DependencyCalls int64   `json:"dependency_calls"`
}

// Second counts the requests that were sent in one second of the run.
type Second struct {
	From      int   `json:"from_s"`
	Offered   int64 `json:"offered"`
	Real      int64 `json:"real"`
	Fallbacks int64 `json:"fallbacks"`
	Failed    int64 `json:"failed"`
}

// PhaseSpan says when a phase of the script was.
type PhaseSpan struct {
	Phase string  `json:"phase"`
	From  float64 `json:"from_s"`
	To    float64 `json:"to_s"`
}

// Transition is a change of a breaker's state.
type Transition struct {
	At         float64 `json:"at_s"`
	Dependency string  `json:"dependency"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Why        string  `json:"why"`

	// Ratio is the figure that decided, Calls the number of calls it is a share of;
	// both 0 where time decided.
	Ratio float64 `json:"ratio"`
	Calls uint64  `json:"calls"`
}

func everyPhase() []int {
	return []int{script.HealthyPhase, script.SlowPhase, script.FailingPhase, script.RecoveringPhase, script.RecoveredPhase}
}

func incidentPhases() []int { return []int{script.SlowPhase, script.FailingPhase} }

func (d *Demo) report(interrupted bool) Report {
	r := Report{
		Unprotected: d.worlds[Unprotected].report(d.script, d.ends.Seconds()),
		Protected:   d.worlds[Protected].report(d.script, d.ends.Seconds()),
		Transitions: d.guarded.changes.all(),
		For:         round(d.ends.Seconds()), Rate: d.cfg.Rate, Seed: d.cfg.Seed,
		RecoveredFrom: round(settleTime(d.script).Seconds()),
		Stalls:        d.lag.stalls(d.ends),
		Interrupted:   interrupted,
	}
	for i, p := range d.script {
		r.Phases = append(r.Phases, PhaseSpan{
			Phase: p.Name, From: round(d.script.Start(i).Seconds()), To: round(d.script.Start(i + 1).Seconds()),
		})
	}
	return r
}

func (w *world) report(s script.Script, seconds float64) World {
	st := w.stats
	all, incident := st.all(everyPhase()...), st.all(incidentPhases()...)
	healthy := st.all(script.HealthyPhase)
	stock := st.of(routeStock, script.HealthyPhase)
	settledStock, settledPrice := st.afterSettle(routeStock), st.afterSettle(routePrice)
	settled := merge(settledStock, settledPrice)
	r := World{
		Offered: all.offered, Real: all.real, Fallbacks: all.fallbacks, Failed: all.failed,
		RealShare: round(all.share(all.real)), FallbackShare: round(all.share(all.fallbacks)), FailedShare: round(all.share(all.failed)),
		P50: all.quantile(50), P99: all.quantile(99),
		DependencyCalls: round(ratio(w.deps[routeStock].total(incidentPhases()...), w.service.total(routeStock, incidentPhases()...))),
		PeakGoroutines:  w.peak(),

		NeighbourP99:         st.of(routePrice, everyPhase()...).quantile(99),
		NeighbourHealthyP99:  st.of(routePrice, script.HealthyPhase).quantile(99),
		NeighbourIncidentP99: st.of(routePrice, incidentPhases()...).quantile(99),

		HealthyP99:  healthy.quantile(99),
		IncidentP50: incident.quantile(50),
		IncidentP99: incident.quantile(99),

		HealthyReal:        round(healthy.share(healthy.real)),
		IncidentReal:       round(incident.share(incident.real)),
		RecoveredReal:      round(settled.share(settled.real)),
		StockHealthyReal:   round(stock.share(stock.real)),
		StockRecoveredReal: round(settledStock.share(settledStock.real)),
	}
	if seconds > 0 {
		r.Goodput = round(float64(all.real) / seconds)
	}
	for i, p := range s {
		t := st.all(i)
		r.Phases = append(r.Phases, WorldPhase{
			Phase: p.Name, Offered: t.offered, Real: t.real, Fallbacks: t.fallbacks, Failed: t.failed,
			P50: t.quantile(50), P99: t.quantile(99), NeighbourP99: st.of(routePrice, i).quantile(99),
			DependencyCalls: w.deps[routeStock].total(i),
		})
	}
	for i, c := range st.timeline() {
		r.Seconds = append(r.Seconds, Second{From: i, Offered: c.offered, Real: c.real, Fallbacks: c.fallbacks, Failed: c.failed})
	}
	return r
}

// round keeps three decimals, which is more than the figures deserve.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
