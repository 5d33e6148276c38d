package otelx

import (
	"context"
	"maps"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/policy"
)

// TracerConfig configures a [Tracer]. The zero value is valid. It can be handed to
// [policy.New] and [policy.Registry.Use] as it is.
type TracerConfig struct {
	// TracerProvider makes the spans. Nil means the global one, also if it is set
	// after the Tracer was made.
	TracerProvider trace.TracerProvider

	// LoggerProvider takes the events of calls that are recorded: refusals, waits,
	// probes, retries, fallbacks and hedges, as log records in the context of the span
	// they are about. Nil means the global one, also if it is set after the Tracer was
	// made; where no SDK for logs is set up that drops them.
	LoggerProvider log.LoggerProvider

	// Always starts a span for each call, also for one whose context carries no
	// recording span. The sampler of the TracerProvider then decides about each
	// such call, which costs about what a span costs even when it declines. False
	// means that a call is followed only as part of a trace that is being recorded.
	Always bool
}

// Validate reports every invalid field, joined. Today every TracerConfig is valid.
func (c TracerConfig) Validate() error { return nil }

// BuildPolicy implements [policy.Policy].
func (c TracerConfig) BuildPolicy() (policy.Part, error) {
	t, err := NewTracer(c)
	if err != nil {
		return policy.Part{Kind: "tracer"}, err
	}
	return t.BuildPolicy()
}

// Tracer is a [policy.Tracer] that makes one span for each call, named
// "call <dependency>", and below it one for each attempt, named
// "attempt <dependency>". A span of an attempt begins before its gates are asked, so
// it includes the wait for a permit; the function runs under its context, so spans
// the function starts are its children.
//
// What happens at the gates and between attempts is told by attributes (the wait and the
// delay before an attempt are on its span, why no further one followed and which
// fallback answered are on the call's) and by log records in the context of the span.
// There are no span events, which OpenTelemetry is phasing out (OTEP 4430).
//
// A call is followed when the span in its context is recording, or always
// ([TracerConfig]). Otherwise it costs that look at the context and allocates
// nothing. Attempts entered by hand ([policy.Pipeline.Enter]) are not followed.
//
// One Tracer serves any number of pipelines; it is safe for concurrent use. A panic
// in the TracerProvider or one of its processors is caught and dropped.
type Tracer struct {
	cfg    TracerConfig
	tracer trace.Tracer
	events log.Logger
	names  atomic.Pointer[map[string]*spanNames] // replaced, never changed in place
}

// maxNames bounds what a Tracer remembers, should somebody make pipelines without
// end.
const maxNames = 1024

// spanNames is what all spans of a dependency share.
type spanNames struct {
	dependency    string
	call, attempt string
	start         []trace.SpanStartOption

	attempts, calls exemplars
}

// exemplarsOf returns the latest recorded spans whose durations are in a metric.
func (t *Tracer) exemplarsOf(dependency string, f *family) []exemplar {
	if t == nil || (f != table.duration && f != table.callDuration) {
		return nil
	}
	n, ok := (*t.names.Load())[dependency]
	switch {
	case !ok:
		return nil
	case f == table.duration:
		return n.attempts.list()
	}
	return n.calls.list()
}

// NewTracer returns a Tracer. The error joins everything that is wrong with cfg.
func NewTracer(cfg TracerConfig) (*Tracer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.LoggerProvider == nil {
		cfg.LoggerProvider = otel.GetLoggerProvider()
	}
	t := &Tracer{cfg: cfg, events: newLogger(cfg.LoggerProvider)}
	t.tracer = cfg.TracerProvider.Tracer(ScopeName,
		trace.WithInstrumentationVersion(Version), trace.WithSchemaURL(semconv.SchemaURL))
	t.names.Store(&map[string]*spanNames{})
	return t, nil
}

// Config returns the effective settings.
func (t *Tracer) Config() TracerConfig { return t.cfg }

// BuildPolicy implements [policy.Policy], so that a Tracer can be handed to
// [policy.New] and [policy.Registry.Use] without [policy.Trace].
func (t *Tracer) BuildPolicy() (policy.Part, error) {
	return policy.Trace(t).BuildPolicy()
}

// StartCall implements [policy.Tracer].
func (t *Tracer) StartCall(ctx context.Context, dependency string) (context.Context, policy.CallSpan) {
	if !t.cfg.Always && !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return t.start(ctx, dependency)
}

func (t *Tracer) start(ctx context.Context, dependency string) (sctx context.Context, call policy.CallSpan) {
	defer func() {
		if recover() != nil {
			sctx, call = ctx, nil
		}
	}()
	n := t.namesOf(dependency)
	sctx, span := t.tracer.Start(ctx, n.call, n.start...)
	if span.IsRecording() {
		return sctx, &callSpan{tracer: t, names: n, span: span, ctx: sctx}
	}
	// The sampler declined. Spans further down must hear of it when they cannot see
	// it already: a dropped root would otherwise become several.
	sc, parent := span.SpanContext(), trace.SpanContextFromContext(ctx)
	if !sc.IsValid() || (sc.TraceID() == parent.TraceID() && sc.TraceFlags() == parent.TraceFlags()) {
		return ctx, nil // a span that does not record has nothing to end
	}
	return sctx, droppedCall{}
}

// namesOf returns what the spans of a dependency share. It takes no lock: two
// goroutines may make the same names at once, and one of them is kept.
func (t *Tracer) namesOf(dependency string) *spanNames {
	known := t.names.Load()
	if n, ok := (*known)[dependency]; ok {
		return n
	}
	n := &spanNames{
		dependency: dependency,
		call:       "call " + dependency,
		attempt:    "attempt " + dependency,
		start:      []trace.SpanStartOption{trace.WithAttributes(keyDependency.String(dependency))},
	}
	if len(*known) < maxNames {
		more := maps.Clone(*known)
		more[dependency] = n
		t.names.CompareAndSwap(known, &more)
	}
	return n
}
