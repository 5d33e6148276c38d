package otelx

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exemplar is one duration and the span that it was.
type exemplar struct {
	seconds float64
	when    time.Time
	trace   trace.TraceID
	span    trace.SpanID
}

// proto returns the exemplar as Prometheus has it.
func (e *exemplar) proto() *dto.Exemplar {
	return &dto.Exemplar{
		Label: []*dto.LabelPair{
			{Name: new("trace_id"), Value: new(e.trace.String())},
			{Name: new("span_id"), Value: new(e.span.String())},
		},
		Value:     new(e.seconds),
		Timestamp: timestamppb.New(e.when),
	}
}

// exemplars holds the latest recorded durations of one kind, one for each doubling.
type exemplars [29]atomic.Pointer[exemplar]

// exemplarEvery is how often an exemplar is replaced: nobody looks at more than one a
// scrape, and each costs an allocation.
const exemplarEvery = time.Second

// note remembers a duration. It is called for spans that are recorded and no others.
func (x *exemplars) note(d time.Duration, now time.Time, sc trace.SpanContext) {
	slot := &x[min(bits.Len64(uint64(max(d, 0)/time.Microsecond)), len(x)-1)]
	if old := slot.Load(); old != nil && now.Sub(old.when) < exemplarEvery {
		return
	}
	slot.Store(&exemplar{seconds: d.Seconds(), when: now, trace: sc.TraceID(), span: sc.SpanID()})
}

// list returns what is remembered, the latest last.
func (x *exemplars) list() (all []exemplar) {
	if x == nil {
		return nil
	}
	for i := range x {
		if e := x[i].Load(); e != nil {
			all = append(all, *e)
		}
	}
	slices.SortFunc(all, func(a, b exemplar) int { return a.when.Compare(b.when) })
	return all
}
