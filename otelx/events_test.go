package otelx_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// events is a LoggerProvider that keeps what it is given, as lines.
type events struct {
	embedded.LoggerProvider

	mu    sync.Mutex
	lines []string
	spans []trace.SpanContext
	off   bool
}

func (e *events) Logger(string, ...log.LoggerOption) log.Logger { return eventLogger{events: e} }

type eventLogger struct {
	embedded.Logger
	*events
}

func (e eventLogger) Enabled(context.Context, log.EnabledParameters) bool { return !e.off }

func (e eventLogger) Emit(ctx context.Context, r log.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	fmt.Fprint(&b, r.Severity(), " ", r.EventName())
	for kv := range r.WalkAttributes {
		fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(kv.Key), "breakwater."), kv.Value)
	}
	e.lines = append(e.lines, b.String())
	e.spans = append(e.spans, trace.SpanContextFromContext(ctx))
}

func TestTracerTellsOfEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, logs := record(t), &events{}
		p := pipeline(t, "inventory",
			otelx.TracerConfig{TracerProvider: r.provider, LoggerProvider: logs},
			retry.Config{MaxAttempts: 2, BaseDelay: 250 * time.Millisecond, Jitter: retry.NoJitter},
			bulkhead.Semaphore{Limit: 1, MaxWait: 2 * time.Second},
			breaker.Config{ConsecutiveFailures: 2, MinCalls: 100, OpenFor: 5 * time.Second},
			answer{name: "broken", err: errSick}, answer{name: "stale"},
		)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { h.Leave(nil); h.Release() })
		_, err = policy.Do(r.ctx, p, script(errSick, errSick)) // waits a second, fails twice: the breaker opens
		require.NoError(t, err)
		_, err = policy.Do(r.ctx, p, script())
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		_, err = policy.Do(r.ctx, p, script())
		require.NoError(t, err)
		assert.Equal(t, []string{
			"INFO breakwater.wait dependency=inventory attempt=1 wait=1",
			"INFO breakwater.retry dependency=inventory attempt=1 outcome=failure retry.delay=0.25",
			"INFO breakwater.stopped dependency=inventory attempt=2 outcome=failure retry.stop=attempts",
			"WARN breakwater.fallback dependency=inventory fallback.policy=broken result=failed",
			"INFO breakwater.fallback dependency=inventory fallback.policy=stale result=served",
			"WARN breakwater.rejected dependency=inventory policy=breaker reason=open retry_after=5 attempt=1",
			"INFO breakwater.stopped dependency=inventory attempt=1 outcome=not_run retry.stop=rejected",
			"WARN breakwater.fallback dependency=inventory fallback.policy=broken result=failed",
			"INFO breakwater.fallback dependency=inventory fallback.policy=stale result=served",
			"INFO breakwater.probe dependency=inventory attempt=1",
		}, logs.lines)
		vs := r.views(t)
		assert.InDelta(t, 1.0, vs[1].attrs["breakwater.wait"], 0)
		assert.Equal(t, true, vs[len(vs)-1].attrs["breakwater.probe"])
		spans := r.Started()[1:]
		assert.Equal(t, spans[1].SpanContext().SpanID(), logs.spans[0].SpanID(), "a wait is the attempt's")
		assert.Equal(t, spans[0].SpanContext().SpanID(), logs.spans[1].SpanID(), "a retry is the call's")

		n := len(logs.lines)
		logs.off = true
		_, _ = policy.Do(r.ctx, p, script(errSick))
		assert.Len(t, logs.lines, n, "nothing is made for nobody")
	})
}

// Attempts side by side are told apart.
func TestTracerFollowsHedges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, logs := record(t), &events{}
		p := pipeline(t, "dep", otelx.TracerConfig{TracerProvider: r.provider, LoggerProvider: logs},
			hedges{delay: 100 * time.Millisecond})
		ctx := policy.WithCall(r.ctx, policy.Call{Idempotent: true})
		var calls atomic.Int32
		_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 1, nil
		})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"INFO breakwater.hedge dependency=dep attempt=1 hedge.delay=0.1"}, logs.lines)
		vs := r.views(t)
		require.Len(t, vs, 3)
		assert.Equal(t, "canceled", vs[1].attrs["breakwater.outcome"])
		assert.Equal(t, "success", vs[2].attrs["breakwater.outcome"])
		assert.Equal(t, int64(1), vs[2].attrs["breakwater.hedge"])
	})
}

// What only the request knows is on the spans too, by OpenTelemetry's conventions.
func TestTransportDescribesTheServer(t *testing.T) {
	t.Parallel()
	r := record(t)
	p := pipeline(t, "dep", r.tracer(t), retry.Config{BaseDelay: retry.Off})
	answers := []int{http.StatusServiceUnavailable, http.StatusOK}
	inner := otelx.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
		code := answers[0]
		answers = answers[1:]
		rec := httptest.NewRecorder()
		rec.WriteHeader(code)
		res := rec.Result()
		res.Request = req
		return res, nil
	}))
	client := &http.Client{Transport: httpx.Transport(p, roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, span := r.provider.Tracer("otelhttp").Start(req.Context(), "GET") // as otelhttp does
		defer span.End()
		return inner.RoundTrip(req.WithContext(ctx))
	}))}
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, "https://user:secret@stock.example:8443/4711?key=1", http.NoBody)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	want := [][]attribute.KeyValue{
		{attribute.String("server.address", "stock.example"), attribute.Int("server.port", 8443)},
		{attribute.String("server.address", "stock.example"), attribute.Int("server.port", 8443), attribute.Int("http.request.resend_count", 1)},
	}
	n := 0
	for _, s := range r.Ended() {
		switch s.Name() {
		case "GET":
			assert.ElementsMatch(t, want[n], s.Attributes())
		case "attempt dep":
			assert.Subset(t, s.Attributes(), want[n])
			n++
		}
		assert.NotContains(t, fmt.Sprint(s.Attributes()), "secret")
		assert.NotContains(t, fmt.Sprint(s.Attributes()), "4711")
	}
	assert.Equal(t, 2, n)

	for url, port := range map[string]int{"https://a.example/": 443, "http://a.example/": 80, "http://[::1]:81/": 81} {
		ctx, span := r.provider.Tracer("test").Start(r.ctx, "x")
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		answers = []int{200}
		res, err := inner.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		span.End()
		ended := r.Ended()
		assert.Contains(t, ended[len(ended)-1].Attributes(), attribute.Int("server.port", port))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Histograms lead to the traces of calls that were recorded, and of no others.
func TestCollectorHasExemplars(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		tr := r.tracer(t)
		var reg policy.Registry
		reg.Use(tr)
		p := add(t, &reg, "dep")
		c := collector(t, &reg, otelx.CollectorConfig{Tracer: tr})
		sleep := func(d time.Duration) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { time.Sleep(d); return 0, nil }
		}
		_, _ = policy.Do(t.Context(), p, sleep(10*time.Millisecond))
		assert.NotContains(t, openMetrics(t, c), "trace_id")
		_, _ = policy.Do(r.ctx, p, sleep(100*time.Millisecond))
		_, _ = policy.Do(r.ctx, p, sleep(10*time.Second))
		_, _ = policy.Do(r.ctx, p, sleep(10*time.Second))
		got := openMetrics(t, c)
		of := fmt.Sprintf(`# {trace_id="%s",span_id="`, r.root.SpanContext().TraceID())
		for _, want := range []string{
			`breakwater_attempt_duration_seconds_bucket{dependency="dep",le="0.131072"} 2 ` + of,
			`breakwater_attempt_duration_seconds_bucket{dependency="dep",le="+Inf"} 4 ` + of,
			`breakwater_call_duration_seconds_bucket{dependency="dep",le="0.262144"} 2 ` + of,
		} {
			assert.Contains(t, got, want)
		}
		assert.Equal(t, 4, strings.Count(got, "trace_id"))
		assert.Len(t, native(t, c).GetExemplars(), 2)
	})
}

// openMetrics returns what a scrape in the OpenMetrics format returns.
func openMetrics(tb testing.TB, c prometheus.Collector) string {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	rec, req := httptest.NewRecorder(), httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", http.NoBody)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	promhttp.HandlerFor(preg, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(rec, req)
	require.Equal(tb, http.StatusOK, rec.Code, rec.Body)
	return rec.Body.String()
}
