//go:build !race

package grafana_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A server is a Prometheus that the test has started.
type server struct {
	tb     testing.TB
	base   string
	client *http.Client
}

const serverConfig = `
global: {scrape_interval: 400ms, scrape_timeout: 400ms, evaluation_interval: 200ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: shop
    static_configs: [{targets: [%q, %q]}]
`

// startPrometheus starts one on a free port, with the rules, and stops it in the end.
func startPrometheus(t *testing.T, targets [2]string, rules ruleFile, more ...string) *server {
	t.Helper()
	dir := t.TempDir()
	text, err := yaml.Marshal(rules)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil, serverConfig, targets[0], targets[1]), 0o600))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())

	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	args := append(more,
		"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd := exec.Command(tool(t, "prometheus"), args...) //nolint:noctx // stopped by a signal, so that it can leave its directory clean
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	gone := make(chan struct{})
	go func() { defer close(gone); _ = cmd.Wait() }()
	s := &server{t, "http://" + address, &http.Client{Timeout: 10 * time.Second}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-gone
		}
		_ = log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("prometheus said: %s", said)
		}
	})
	s.until("it is ready", 20*time.Second, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/-/ready", http.NoBody)
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return s
}

// until polls the server until what is waited for holds.
func (s *server) until(what string, limit time.Duration, holds func() bool) {
	s.tb.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Millisecond) {
		require.True(s.tb, time.Now().Before(end), "waited for %v until %s", limit, what)
	}
}

// get asks the API and decodes its data.
func (s *server) get(path string, args url.Values, data any) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.base+"/api/v1/"+path+"?"+args.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if body.Status != "success" {
		return errors.New(body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

type series struct {
	Metric map[string]string
	Value  [2]any   // of an instant
	Values [][2]any // of a range
}

// numbers counts the samples that are numbers.
func numbers(all []series) (n int) {
	for _, s := range all {
		values := s.Values
		if s.Value[1] != nil {
			values = [][2]any{s.Value}
		}
		for _, v := range values {
			if f, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64); err == nil && !math.IsNaN(f) {
				n++
			}
		}
	}
	return n
}

// now evaluates an expression as it stands.
func (s *server) now(expr string) []series {
	s.tb.Helper()
	var data struct{ Result []series }
	require.NoError(s.tb, s.get("query", url.Values{"query": {expr}}, &data), expr)
	return data.Result
}

// since evaluates an expression over the run, as a graph does.
func (s *server) since(begin time.Time, expr string) []series {
	s.tb.Helper()
	var data struct{ Result []series }
	stamp := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	args := url.Values{"query": {expr}, "start": {stamp(begin)}, "end": {stamp(time.Now())}, "step": {"0.5"}}
	require.NoError(s.tb, s.get("query_range", args, &data), expr)
	return data.Result
}

type alert struct {
	Labels   map[string]string
	State    string
	ActiveAt time.Time
}

func (s *server) alerts() []alert {
	s.tb.Helper()
	var data struct{ Alerts []alert }
	require.NoError(s.tb, s.get("alerts", nil, &data))
	return data.Alerts
}

// patience is the longest that an alert waits in the run. A scrape that fails on a busy
// machine has it wait anew, so a wait must not be of hundreds of them.
const patience = 10 * time.Second

// fasterRules are the rules with every duration divided.
func fasterRules(t *testing.T) (f ruleFile) {
	t.Helper()
	for _, name := range []string{recordingFile, alertsFile} {
		for _, g := range loadRules(t, name).Groups {
			for i := range g.Rules {
				r := &g.Rules[i]
				r.Expr = faster(t, r.Expr)
				if r.For != "" {
					r.For = strconv.FormatInt(min(r.wait(t)/hurry, patience).Milliseconds(), 10) + "ms"
				}
			}
			f.Groups = append(f.Groups, g)
		}
	}
	return f
}

// Every alert, and the dependencies of the plant that it is to fire for; no dependency
// stands for alerts that have none. It must fire for all of the first and for none that
// are in neither.
var expected = map[string]struct{ must, may []string }{
	"BreakwaterBreakerOpen":          {must: []string{"broken"}, may: []string{"flapping"}},
	"BreakwaterBreakerOpenSomewhere": {must: []string{"partly"}},
	"BreakwaterKeysOpen":             {must: []string{"keyed"}},
	"BreakwaterBreakerFlapping":      {must: []string{"flapping"}},
	"BreakwaterCallsRefused":         {must: []string{"broken", "forced", "throttle"}, may: []string{"partly", "flapping", "semaphore", "adaptive", "pool", "feedback", "lanes", "keyed", "tenants", "system"}},
	"BreakwaterBulkheadSaturated":    {must: []string{"semaphore"}, may: []string{"adaptive", "pool", "caller"}},
	"BreakwaterRetryBudgetExhausted": {must: []string{"retry"}},
	"BreakwaterFallbackServes":       {must: []string{"broken"}},
	"BreakwaterForcedState":          {must: []string{"forced", "told"}},
	"BreakwaterCriticalCallsShed":    {must: []string{"system"}},
	"BreakwaterKeyTableFull":         {must: []string{"tenants"}},
	"BreakwaterOrphanPanics":         {must: []string{"pool"}},
	"BreakwaterBodiesAbandoned":      {must: []string{"bodies"}},
	"BreakwaterSharedLimitLocal":     {must: []string{"shared"}},
	"BreakwaterSnapshotFailures":     {must: []string{""}},
	"BreakwaterConfigRefused":        {must: []string{""}},
}

// A real Prometheus scrapes a service whose dependencies are well at first and then all
// fall sick, each in its own way. Every alert fires when it should and not before, and
// every query of the dashboards and of the rules returns data.
func TestDebianPrometheusAnswersEveryQuery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	tool(t, "prometheus")
	p := newPlant(t)
	rules := fasterRules(t)
	s := startPrometheus(t, p.urls, rules)
	native := startPrometheus(t, p.urls, ruleFile{}, "--enable-feature=native-histograms")

	// All is well: no alert is even pending.
	s.until("both instances have been scraped for a while", 20*time.Second, func() bool {
		require.Empty(t, s.alerts(), "while all was well")
		all := s.now(`count_over_time(breakwater_calls_total{dependency="well",outcome="success"}[1m]) > 10`)
		return len(all) == 2
	})
	promtoolMetrics(t, p)

	sick := p.fallSick()
	waits := map[string]time.Duration{}
	for _, r := range rules.rules() {
		if r.Alert != "" {
			waits[r.Alert] = r.wait(t)
			require.Contains(t, expected, r.Alert)
		}
	}
	require.Len(t, expected, len(waits))
	missing := func(firing map[string][]string) (out []string) {
		for name, e := range expected {
			for _, dep := range e.must {
				if !slices.Contains(firing[name], dep) {
					out = append(out, name+" for "+dep)
				}
			}
		}
		return out
	}
	firing := map[string][]string{}
	for end := time.Now().Add(70 * time.Second); len(missing(firing)) > 0; time.Sleep(100 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "these do not fire: %v", missing(firing))
		for _, a := range s.alerts() {
			name, dep := a.Labels["alertname"], a.Labels["dependency"]
			if a.State != "firing" || slices.Contains(firing[name], dep) {
				continue
			}
			firing[name] = append(firing[name], dep)
			assert.Contains(t, append(expected[name].must, expected[name].may...), dep, "%s fires", name)
			assert.True(t, a.ActiveAt.After(sick), "%s for %s was active before", name, dep)
			assert.GreaterOrEqual(t, time.Since(a.ActiveAt), waits[name], "%s for %s fired too soon", name, dep)
		}
	}
	t.Logf("all %d alerts fire, %v after the faults began", len(waits), time.Since(sick).Round(time.Second))

	checked, withData := 0, 0
	count := func(where string, n int) {
		checked++
		if n > 0 {
			withData++
		} else {
			t.Errorf("no data: %s", where)
		}
	}
	for _, r := range rules.rules() {
		count(r.Record+r.Alert, numbers(s.since(sick, r.Expr)))
		if r.Record != "" {
			count("recorded "+r.Record, numbers(s.since(sick, r.Record)))
		}
	}
	for _, d := range load(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			label, selector := variable(t, *v.Query.String)
			var values []string
			require.NoError(t, s.get("label/"+label+"/values", url.Values{"match[]": {fill(selector, "shop", "well")}}, &values))
			count(*d.Uid+": variable "+v.Name, len(values))
		}
		for _, q := range queries(t, d) {
			count(q.where, s.answers(q, p))
			if strings.Contains(q.expr, "histogram_") {
				count(q.where+" of a native histogram", native.answers(q, p))
			}
		}
	}
	t.Logf("queries checked: %d, with data: %d", checked, withData)
	fmt.Printf("queries checked: %d, with data: %d\n", checked, withData)
}

// answers returns how many samples a query of a dashboard has, for the first of the
// dependencies for which it has any.
func (s *server) answers(q query, p *plant) int {
	s.tb.Helper()
	for pipe := range p.regs[0].All() {
		expr := faster(s.tb, fill(q.expr, "shop", pipe.Name()))
		var n int
		if q.instant {
			n = numbers(s.now(expr))
		} else {
			n = numbers(s.since(p.begin, expr))
		}
		if n > 0 || !strings.Contains(q.expr, "$dependency") {
			return n
		}
	}
	return 0
}

// variable splits label_values(selector, label).
func variable(t *testing.T, q string) (label, selector string) {
	t.Helper()
	inner, ok := strings.CutPrefix(strings.TrimSuffix(q, ")"), "label_values(")
	require.True(t, ok, q)
	i := strings.LastIndex(inner, ", ")
	_, err := parser.NewParser(parser.Options{}).ParseExpr(fill(inner[:i], "j", "d"))
	require.NoError(t, err, q)
	return inner[i+2:], inner[:i]
}

// promtoolMetrics has promtool look at what the plant exposes.
func promtoolMetrics(t *testing.T, p *plant) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.urls[0], http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	cmd := exec.CommandContext(t.Context(), tool(t, "promtool"), "check", "metrics")
	cmd.Stdin = resp.Body
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool check metrics: %s", out)
	assert.Empty(t, string(out), "promtool check metrics")
}
