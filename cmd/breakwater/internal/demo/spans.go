package demo

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// Trace is an example of a request, as OpenTelemetry spans show it.
type Trace struct {
	Phase string // in which the request arrived
	Spans []Span // parents before their children
}

// Span is one span of a [Trace].
type Span struct {
	Depth      int
	Name       string
	Duration   time.Duration
	Attributes []string // key=value
	Failed     bool     // its status is an error
}

// spanKeeper makes spans of the protected world and keeps the first trace of each
// kind in each phase: a request that succeeded at once, one that was retried, one
// that was refused, and so on. It is a span processor.
type spanKeeper struct {
	phase    func() string
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer

	mu     sync.Mutex
	open   map[trace.TraceID]*openTrace
	seen   map[string]bool // phases and kinds of the traces that were kept
	traces []Trace
}

// openTrace collects the spans of a request that has not been answered.
type openTrace struct {
	phase string
	ended []sdktrace.ReadOnlySpan
}

func newSpanKeeper(phase func() string) *spanKeeper {
	k := &spanKeeper{phase: phase, open: map[trace.TraceID]*openTrace{}, seen: map[string]bool{}}
	k.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(k))
	k.tracer = k.provider.Tracer("github.com/breakwater-go/breakwater/cmd/breakwater")
	return k
}

// policy returns the tracer for the pipelines.
func (k *spanKeeper) policy() (policy.Policy, error) {
	t, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: k.provider})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return t, nil
}

// wrap begins a trace for each request to h.
func (k *spanKeeper) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := k.tracer.Start(r.Context(), "GET "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// OnStart implements [sdktrace.SpanProcessor].
func (k *spanKeeper) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.Parent().IsValid() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[s.SpanContext().TraceID()] = &openTrace{phase: k.phase()}
}

// OnEnd implements [sdktrace.SpanProcessor].
func (k *spanKeeper) OnEnd(s sdktrace.ReadOnlySpan) {
	id := s.SpanContext().TraceID()
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.open[id]
	if t == nil {
		return
	}
	t.ended = append(t.ended, s)
	if s.Parent().IsValid() {
		return
	}
	delete(k.open, id)
	tr := Trace{Phase: t.phase, Spans: tree(t.ended, trace.SpanID{}, 0)}
	if kind := tr.kind(); !k.seen[kind] {
		k.seen[kind] = true
		k.traces = append(k.traces, tr)
	}
}

// Shutdown implements [sdktrace.SpanProcessor].
func (*spanKeeper) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdktrace.SpanProcessor].
func (*spanKeeper) ForceFlush(context.Context) error { return nil }

// tree returns the spans below parent, each before its children and in the order in
// which they began.
func tree(spans []sdktrace.ReadOnlySpan, parent trace.SpanID, depth int) []Span {
	var children []sdktrace.ReadOnlySpan
	for _, s := range spans {
		if s.Parent().SpanID() == parent {
			children = append(children, s)
		}
	}
	slices.SortStableFunc(children, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var list []Span
	for _, s := range children {
		span := Span{Depth: depth, Name: s.Name(), Duration: s.EndTime().Sub(s.StartTime()), Failed: s.Status().Code == codes.Error}
		for _, a := range s.Attributes() {
			span.Attributes = append(span.Attributes, string(a.Key)+"="+a.Value.String())
		}
		list = append(list, span)
		list = append(list, tree(spans, s.SpanContext().SpanID(), depth+1)...)
	}
	return list
}

// kind returns what tells a trace from others: its phase, its spans and how they
// ended.
func (t Trace) kind() string {
	var b strings.Builder
	b.WriteString(t.Phase)
	for _, s := range t.Spans {
		fmt.Fprintf(&b, "\n%d %s %t", s.Depth, s.Name, s.Failed)
		for _, a := range s.Attributes {
			// Figures that differ from call to call do not make a kind.
			if key, _, _ := strings.Cut(a, "="); key == "error.type" || key == "breakwater.outcome" || key == "breakwater.reason" {
				b.WriteString(" " + a)
			}
		}
	}
	return b.String()
}

func (k *spanKeeper) all() []Trace {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.traces)
}
