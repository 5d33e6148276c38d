package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// recorder keeps spans, and the events that belong to them.
type recorder struct {
	embedded.LoggerProvider

	spans  *sdktrace.TracerProvider
	ended  *tracetest.SpanRecorder
	events []event
}

type event struct {
	span trace.SpanID
	node
}

// node is a line of a tree.
type node struct {
	when time.Time
	text string
	span trace.SpanID // of a span
}

func newRecorder() *recorder {
	r := &recorder{ended: tracetest.NewSpanRecorder()}
	r.spans = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.ended))
	return r
}

// Logger implements log.LoggerProvider.
func (r *recorder) Logger(string, ...log.LoggerOption) log.Logger { return eventLogger{r: r} }

type eventLogger struct {
	embedded.Logger

	r *recorder
}

func (eventLogger) Enabled(context.Context, log.EnabledParameters) bool { return true }

func (l eventLogger) Emit(ctx context.Context, rec log.Record) {
	var attrs []attribute.KeyValue
	for kv := range rec.WalkAttributes {
		attrs = append(attrs, kv)
	}
	name := "* " + strings.TrimPrefix(rec.EventName(), "breakwater.")
	l.r.events = append(l.r.events, event{
		trace.SpanContextFromContext(ctx).SpanID(),
		node{when: rec.Timestamp(), text: name + format(attrs)},
	})
}

// print writes what is below a span, in the order in which it began.
func (r *recorder) print(w io.Writer, root trace.SpanID) { r.below(w, root, "") }

func (r *recorder) below(w io.Writer, parent trace.SpanID, indent string) {
	var nodes []node
	for _, s := range r.ended.Ended() {
		if s.Parent().SpanID() == parent {
			took := s.EndTime().Sub(s.StartTime()).Round(10 * time.Millisecond)
			nodes = append(nodes, node{s.StartTime(), fmt.Sprintf("%s  %v%s", s.Name(), took, format(s.Attributes())), s.SpanContext().SpanID()})
		}
	}
	for _, e := range r.events {
		if e.span == parent {
			nodes = append(nodes, e.node)
		}
	}
	slices.SortStableFunc(nodes, func(a, b node) int {
		return cmp.Or(a.when.Compare(b.when), cmp.Compare(b.text[:1], a.text[:1])) // a span before the event that follows it
	})
	for i, n := range nodes {
		branch, next := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, next = "└─ ", "   "
		}
		fmt.Fprintf(w, "%s%s%s\n", indent, branch, n.text)
		if n.span.IsValid() {
			r.below(w, n.span, indent+next)
		}
	}
}

// format lists attributes but for the dependency, which is in the names.
func format(attrs []attribute.KeyValue) string {
	var b strings.Builder
	for _, kv := range attrs {
		if key := strings.TrimPrefix(string(kv.Key), "breakwater."); key != "dependency" {
			v := kv.Value.String()
			if kv.Value.Type() == attribute.FLOAT64 {
				v = fmt.Sprintf("%.3g", kv.Value.AsFloat64())
			}
			fmt.Fprintf(&b, "  %s=%s", key, v)
		}
	}
	return b.String()
}
