package otelx

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// DebugConfig configures a [DebugHandler]. The zero value is valid.
type DebugConfig struct {
	// Authorize says who may see the page. Nil means: who asks from this machine, by a
	// loopback address and under a loopback name, and not through a proxy. The name is
	// looked at because a page of somebody else's, open in a browser on this machine,
	// can have its own name lead here (DNS rebinding).
	Authorize func(*http.Request) bool
}

// Validate reports every invalid field, joined. Today every DebugConfig is valid.
func (c DebugConfig) Validate() error { return nil }

// DebugHandler returns a page in plain text that says how each pipeline of reg is: what
// is open and why, and the figures of every policy. It is for those who have neither
// OpenTelemetry nor Prometheus, and for a look from a shell:
//
//	mux.Handle("/debug/breakwater", otelx.DebugHandler(&registry, otelx.DebugConfig{}))
//
// With the parameter dependency it shows that one alone, and with all the values of all
// metrics. Keys, notes and error texts do not appear. It answers GET and HEAD.
func DebugHandler(reg *policy.Registry, cfg DebugConfig) http.Handler {
	allowed := cfg.Authorize
	if allowed == nil {
		allowed = fromThisMachine
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case !allowed(r):
			http.Error(w, "forbidden: this page is for requests from this machine, unless DebugConfig.Authorize says otherwise", http.StatusForbidden)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		query := r.URL.Query()
		_, _ = w.Write(debugPage(reg, query.Get("dependency"), query.Has("all")))
	})
}

// fromThisMachine reports whether a request comes from a loopback address, to a loopback
// name, and not by way of a proxy.
func fromThisMachine(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, proxied := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(proxied) != "" {
			return false
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// debugPage writes the page.
func debugPage(reg *policy.Registry, only string, all bool) []byte {
	var b bytes.Buffer
	if reg == nil {
		return []byte("no registry\n")
	}
	fmt.Fprintf(&b, "breakwater at %s\n", time.Now().UTC().Format(time.RFC3339))
	if c := reg.Config(); c.Applied+c.Refused > 0 {
		fmt.Fprintf(&b, "configuration %d, applied %d, refused %d\n", c.Version, c.Applied, c.Refused)
		if c.LastError != nil {
			fmt.Fprintf(&b, "  refused at %s: %s\n", c.RefusedAt.UTC().Format(time.RFC3339), strings.ReplaceAll(c.LastError.Error(), "\n", "\n    "))
		}
	}
	shown := 0
	for p := range reg.All() {
		if only != "" && p.Name() != only {
			continue
		}
		shown++
		s, ok := snapshot(p)
		if !ok {
			fmt.Fprintf(&b, "\n%s\n  its state cannot be read: a policy has panicked\n", p.Name())
			continue
		}
		debugPipeline(&b, &s)
	}
	if shown == 0 {
		b.WriteString("no pipelines\n")
	}
	if all {
		b.WriteByte('\n')
		debugValues(&b, reg, only)
	}
	return b.Bytes()
}

func debugPipeline(b *bytes.Buffer, s *policy.Snapshot) {
	fmt.Fprintf(b, "\n%s\n", s.Dependency)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	defer func() { _ = t.Flush() }()
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("calls", "%s", kinds(s.Calls))
	row("attempts", "%s; retries %d, panics %d", kinds(s.Attempts), s.Retries, s.Panics)
	row("call time", "%s", quantiles(s.CallLatency))
	row("attempt time", "%s", quantiles(s.Latency))
	for i := range s.Policies {
		p := &s.Policies[i]
		row(p.Name, "%s", strings.Join(describePolicy(s.Time, p), "; "))
	}
}

// kinds lists the outcomes that there were.
func kinds(counts [policy.NumKinds]uint64) string {
	var list []string
	for k := range policy.NumKinds {
		if n := counts[k]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", k, n))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// describePolicy says how a policy is, in a few phrases.
func describePolicy(now time.Time, p *policy.PolicySnapshot) (say []string) {
	add := func(format string, args ...any) { say = append(say, fmt.Sprintf(format, args...)) }
	if p.Shadow {
		add("in shadow mode")
	}
	if b := p.Breaker; b != nil {
		state := b.State
		if !b.Since.IsZero() {
			state += fmt.Sprintf(" for %s", short(now.Sub(b.Since)))
		}
		if b.Why != "" {
			state += " because of " + b.Why
		}
		add("%s", state)
		if b.RetryAfter > 0 {
			add("next change in %s", short(b.RetryAfter))
		}
		add("window: %d calls, %.0f %% failed, %.0f %% slow", b.Calls, 100*b.FailureRatio, 100*b.SlowRatio)
		add("opened %d times", b.Opened)
		if b.MaxKeys > 0 {
			add("%d keys, %d of them open", b.Keys, b.OpenKeys)
		}
	}
	if b := p.Bulkhead; b != nil {
		add("%d of %d in use, at most %d so far", b.InFlight, b.Limit, b.HighWater)
		if b.MaxWaiters > 0 {
			add("%d of %d wait", b.Waiting, b.MaxWaiters)
		}
	}
	if l := p.Limiter; l != nil {
		say = append(say, describeLimiter(p)...)
	}
	if r := p.Retry; r != nil {
		var stops []string
		for stop := policy.StopNone + 1; stop < policy.NumStops; stop++ {
			if n := r.Stopped[stop]; n > 0 {
				stops = append(stops, fmt.Sprintf("%s %d", stop, n))
			}
		}
		if len(stops) > 0 {
			add("stopped: %s", strings.Join(stops, ", "))
		}
		if r.HasBudget {
			add("budget: %.1f left", r.BudgetRemaining)
		}
	}
	if h := p.Hedge; h != nil {
		add("hedges: %d, won %d, suppressed %d, refused %d", h.Started, h.Won, h.Suppressed, h.Refused)
	}
	if f := p.Fallback; f != nil {
		add("served %d, failed %d, rejected %d", f.Served, f.Failed, f.Rejected)
	}
	if t := p.Timeouts; t != nil {
		add("total %s, attempt %s", t.Total, t.Attempt)
	}
	var refused []string
	for r := range policy.NumReasons {
		if n := p.Rejected[r]; n > 0 {
			refused = append(refused, fmt.Sprintf("%s %d", r, n))
		}
	}
	if len(refused) > 0 {
		add("refused: %s", strings.Join(refused, ", "))
	}
	if len(say) == 0 {
		add("%s", p.Kind)
	}
	return say
}

func describeLimiter(p *policy.PolicySnapshot) (say []string) {
	l := p.Limiter
	add := func(format string, args ...any) { say = append(say, fmt.Sprintf(format, args...)) }
	if d := l.Load; d != nil {
		state := "does not shed"
		if d.Overloaded {
			state = "sheds"
		}
		add("%s; CPU %.0f %%, queue delay %s, %d in flight", state, 100*d.CPU, short(d.Delay), d.InFlight)
		return say
	}
	add("%.1f of %.0f tokens, %g/s", l.Tokens, l.Burst, l.Rate)
	if limiterWaits(p) {
		add("%d of %d wait", l.Waiting, l.MaxWaiters)
	}
	if l.Keyed != nil {
		add("%d keys", l.Keyed.Keys)
	}
	for i := range l.Lanes {
		add("lane %s: admitted %d, refused %d, %d wait", label(l.Lanes[i].Name), l.Lanes[i].Admitted, sum(l.Lanes[i].Rejected[:]), l.Lanes[i].Waiting)
	}
	for i := range l.Limits {
		add("%s refused %d", label(l.Limits[i].Name), sum(l.Limits[i].Rejected[:]))
	}
	if l.Shared != nil {
		add("mode %s", l.Shared.Mode)
	}
	return say
}

// debugValues lists the values of all metrics.
func debugValues(b *bytes.Buffer, reg *policy.Registry, only string) {
	all := Values(reg)
	for _, dependency := range sortedKeys(all) {
		if only != "" && dependency != only {
			continue
		}
		for _, name := range sortedKeys(all[dependency]) {
			fmt.Fprintf(b, "%s %s %v\n", dependency, name, all[dependency][name])
		}
	}
}
