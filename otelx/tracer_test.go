package otelx_test

import (
	"context"
	"maps"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// recorded is a TracerProvider that keeps its spans, and a context inside one.
type recorded struct {
	*tracetest.SpanRecorder

	provider *sdktrace.TracerProvider
	ctx      context.Context //nolint:containedctx // the context of a test
	root     trace.Span
}

func record(tb testing.TB) *recorded {
	tb.Helper()
	r := &recorded{SpanRecorder: tracetest.NewSpanRecorder()}
	r.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r))
	r.ctx, r.root = r.provider.Tracer("test").Start(tb.Context(), "root") //nolint:spancheck // ended by the cleanup
	tb.Cleanup(func() { r.root.End() })
	return r
}

func (r *recorded) tracer(tb testing.TB) *otelx.Tracer {
	tb.Helper()
	t, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: r.provider})
	require.NoError(tb, err)
	return t
}

// view is what a test compares of a span.
type view struct {
	name, parent string
	status       codes.Code
	attrs        map[string]any
}

// views returns the spans in the order they began, and checks what holds for all.
func (r *recorded) views(tb testing.TB) []view {
	tb.Helper()
	require.Len(tb, r.Ended(), len(r.Started())-1, "every span but the root has ended")
	names := map[trace.SpanID]string{r.root.SpanContext().SpanID(): "root"}
	var vs []view
	for _, s := range r.Started()[1:] {
		names[s.SpanContext().SpanID()] = s.Name()
		assert.Equal(tb, otelx.ScopeName, s.InstrumentationScope().Name)
		assert.Equal(tb, otelx.Version, s.InstrumentationScope().Version)
		assert.Equal(tb, trace.SpanKindInternal, s.SpanKind())
		assert.Empty(tb, s.Events(), "neither events nor recorded errors")
		assert.Empty(tb, s.Status().Description, "no error text")
		v := view{name: s.Name(), parent: names[s.Parent().SpanID()], status: s.Status().Code, attrs: map[string]any{}}
		for _, kv := range s.Attributes() {
			assert.NotContains(tb, kv.Value.String(), "4711", "no keys, no error text")
			v.attrs[string(kv.Key)] = kv.Value.AsInterface()
		}
		vs = append(vs, v)
	}
	return vs
}

type attrs = map[string]any

func TestTracerFollowsARetriedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		p := pipeline(t, "inventory", r.tracer(t), retries{max: 3, delay: 250 * time.Millisecond})

		got, err := policy.Do(r.ctx, p, script(errSick, errSick))
		require.NoError(t, err)
		assert.Equal(t, "fresh", got)

		assert.Equal(t, []view{
			{"call inventory", "root", codes.Unset, attrs{
				"breakwater.dependency": "inventory", "breakwater.outcome": "success",
				"breakwater.attempts": int64(3), "breakwater.degraded": false,
			}},
			{"attempt inventory", "call inventory", codes.Error, attrs{
				"breakwater.dependency": "inventory", "breakwater.attempt": int64(1),
				"breakwater.outcome": "failure", "error.type": "failure",
			}},
			{"attempt inventory", "call inventory", codes.Error, attrs{
				"breakwater.dependency": "inventory", "breakwater.attempt": int64(2),
				"breakwater.outcome": "failure", "error.type": "failure", "breakwater.retry.delay": 0.25,
			}},
			{"attempt inventory", "call inventory", codes.Unset, attrs{
				"breakwater.dependency": "inventory", "breakwater.attempt": int64(3),
				"breakwater.outcome": "success", "breakwater.retry.delay": 0.25,
			}},
		}, r.views(t))
		spans := r.Started()
		assert.Equal(t, 250*time.Millisecond, spans[3].StartTime().Sub(spans[2].EndTime()), "the pause is between the spans")
	})
}

func TestTracerTellsHowACallEnded(t *testing.T) {
	t.Parallel()
	call := func(status codes.Code, attempts int, outcome string, more attrs) view {
		v := view{"call dep", "root", status, attrs{
			"breakwater.dependency": "dep", "breakwater.attempts": int64(attempts),
			"breakwater.outcome": outcome, "breakwater.degraded": false,
		}}
		maps.Copy(v.attrs, more)
		return v
	}
	attempt := func(status codes.Code, n int, outcome string, more attrs) view {
		v := view{"attempt dep", "call dep", status, attrs{
			"breakwater.dependency": "dep", "breakwater.attempt": int64(n), "breakwater.outcome": outcome,
		}}
		maps.Copy(v.attrs, more)
		return v
	}
	fn := func(err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return "", err }
	}
	open := attrs{"error.type": "rejected", "breakwater.policy": "gate", "breakwater.reason": "open", "breakwater.retry_after": 1.5}
	tests := []struct {
		name     string
		policies []policy.Policy
		ctx      func(context.Context) context.Context
		fn       func(context.Context) (string, error)
		want     []view
	}{
		{
			name: "success", fn: fn(nil),
			want: []view{call(codes.Unset, 1, "success", nil), attempt(codes.Unset, 1, "success", nil)},
		},
		{
			name: "failure", fn: fn(errSick),
			want: []view{
				call(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
				attempt(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
			},
		},
		{
			name: "permanent", fn: fn(policy.AsPermanent(errSick)), policies: []policy.Policy{retries{max: 3}},
			want: []view{
				call(codes.Error, 1, "permanent", attrs{"error.type": "permanent", "breakwater.retry.stop": "outcome"}),
				attempt(codes.Error, 1, "permanent", attrs{"error.type": "permanent"}),
			},
		},
		{
			name: "attempts used up", fn: fn(policy.AsBusy(errSick, 0)), policies: []policy.Policy{retries{max: 2}},
			want: []view{
				call(codes.Error, 2, "busy", attrs{"error.type": "busy", "breakwater.retry.stop": "attempts"}),
				attempt(codes.Error, 1, "busy", attrs{"error.type": "busy"}),
				attempt(codes.Error, 2, "busy", attrs{"error.type": "busy", "breakwater.retry.delay": 0.0}),
			},
		},
		{
			name: "refused", policies: []policy.Policy{refusing(policy.ReasonOpen, 1500*time.Millisecond)},
			want: []view{call(codes.Error, 1, "not_run", open), attempt(codes.Error, 1, "not_run", open)},
		},
		{
			name: "refused for good", policies: []policy.Policy{refusing(policy.ReasonCost, policy.Never)},
			want: []view{
				call(codes.Error, 1, "not_run", attrs{"error.type": "rejected", "breakwater.policy": "gate", "breakwater.reason": "cost"}),
				attempt(codes.Error, 1, "not_run", attrs{"error.type": "rejected", "breakwater.policy": "gate", "breakwater.reason": "cost"}),
			},
		},
		{
			name: "refused further down",
			fn:   fn(&policy.RejectedError{Dependency: "inner", Policy: "limit", Reason: policy.ReasonRate}),
			want: []view{
				call(codes.Error, 1, "not_run", attrs{"error.type": "rejected", "breakwater.policy": "limit", "breakwater.reason": "rate", "breakwater.rejected_by": "inner"}),
				attempt(codes.Error, 1, "not_run", attrs{"error.type": "rejected", "breakwater.policy": "limit", "breakwater.reason": "rate", "breakwater.rejected_by": "inner"}),
			},
		},
		{
			name: "refused at the second attempt", fn: fn(errSick),
			policies: []policy.Policy{retries{max: 3}, onSecond(refusing(policy.ReasonOpen, 1500*time.Millisecond))},
			want: []view{
				call(codes.Error, 2, "failure", attrs{"error.type": "failure", "breakwater.retry.stop": "outcome"}),
				attempt(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
				attempt(codes.Error, 2, "not_run", attrs{
					"error.type": "rejected", "breakwater.policy": "gate", "breakwater.reason": "open",
					"breakwater.retry_after": 1.5, "breakwater.retry.delay": 0.0,
				}),
			},
		},
		{
			name: "degraded after a failure", fn: fn(errSick), policies: []policy.Policy{answer{name: "stale"}},
			want: []view{
				call(codes.Unset, 1, "failure", attrs{"breakwater.degraded": true, "breakwater.fallback.policy": "stale"}),
				attempt(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
			},
		},
		{
			name:     "degraded after a refusal, at the second fallback",
			policies: []policy.Policy{refusing(policy.ReasonOpen, 1500*time.Millisecond), answer{name: "a", err: errSick}, answer{name: "b"}},
			want: []view{
				call(codes.Unset, 1, "not_run", attrs{
					"breakwater.degraded": true, "breakwater.fallback.policy": "b", "breakwater.fallback.failed": []string{"a"},
					"breakwater.policy": "gate", "breakwater.reason": "open", "breakwater.retry_after": 1.5,
				}),
				attempt(codes.Error, 1, "not_run", open),
			},
		},
		{
			name: "fallback failed", fn: fn(errSick), policies: []policy.Policy{answer{name: "a", err: errSick}},
			want: []view{
				call(codes.Error, 1, "failure", attrs{"error.type": "failure", "breakwater.fallback.failed": []string{"a"}}),
				attempt(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
			},
		},
		{
			name: "timed out", policies: []policy.Policy{policy.Timeouts{Attempt: time.Second}},
			fn: func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
			want: []view{
				call(codes.Error, 1, "timeout", attrs{"error.type": "timeout"}),
				attempt(codes.Error, 1, "timeout", attrs{"error.type": "timeout"}),
			},
		},
		{
			name: "cancelled while it ran", ctx: canceledIn(time.Second),
			fn:   func(ctx context.Context) (string, error) { <-ctx.Done(); return "", errSick },
			want: []view{call(codes.Unset, 1, "canceled", nil), attempt(codes.Unset, 1, "canceled", nil)},
		},
		{
			name: "cancelled before it began", ctx: canceledIn(0),
			want: []view{call(codes.Unset, 1, "not_run", nil)},
		},
		{
			name: "cancelled between attempts", ctx: canceledIn(time.Second), fn: fn(errSick),
			policies: []policy.Policy{retries{max: 3, delay: time.Minute}},
			want: []view{
				call(codes.Error, 1, "failure", attrs{"error.type": "failure", "breakwater.retry.stop": "canceled"}),
				attempt(codes.Error, 1, "failure", attrs{"error.type": "failure"}),
			},
		},
		{
			name: "out of time before it began",
			ctx: func(ctx context.Context) context.Context {
				ctx, cancel := context.WithDeadline(ctx, time.Now())
				context.AfterFunc(ctx, cancel)
				return ctx
			},
			want: []view{call(codes.Error, 1, "not_run", attrs{"error.type": "timeout"})},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := record(t)
				ctx := r.ctx
				if tt.ctx != nil {
					ctx = tt.ctx(ctx)
				}
				p := pipeline(t, "dep", append(tt.policies, r.tracer(t))...)
				_, _ = policy.Do(ctx, p, tt.fn)
				assert.Equal(t, tt.want, r.views(t))
			})
		})
	}
}

// onSecond makes a gate let the first attempt in.
func onSecond(g *gate) *gate {
	refuse, n := g.refuse, 0
	g.refuse = func() error {
		if n++; n == 1 {
			return nil
		}
		return refuse()
	}
	return g
}

func canceledIn(d time.Duration) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		if d == 0 {
			cancel()
		} else {
			time.AfterFunc(d, cancel)
		}
		return ctx
	}
}

// A value that was classified as a failure is one, though its error is nil.
func TestTracerFollowsTypedClassification(t *testing.T) {
	t.Parallel()
	r := record(t)
	p := pipeline(t, "dep", r.tracer(t))
	h := policy.For[string](p).Classify(func(string, error) policy.Kind { return policy.Busy })
	_, err := h.Do(r.ctx, script())
	require.NoError(t, err)
	vs := r.views(t)
	require.Len(t, vs, 2)
	for _, v := range vs {
		assert.Equal(t, codes.Error, v.status, v.name)
		assert.Equal(t, "busy", v.attrs["error.type"], v.name)
	}
}

// The panic passes through with its own value, and both spans end.
func TestTracerEndsSpansOfAPanic(t *testing.T) {
	t.Parallel()
	r := record(t)
	p := pipeline(t, "dep", r.tracer(t))
	require.PanicsWithValue(t, "boom", func() {
		_, _ = policy.Do(r.ctx, p, func(context.Context) (string, error) { panic("boom") })
	})
	assert.Equal(t, []view{
		{"call dep", "root", codes.Error, attrs{
			"breakwater.dependency": "dep", "breakwater.attempts": int64(1), "breakwater.degraded": false,
			"breakwater.outcome": "failure", "error.type": "panic",
		}},
		{"attempt dep", "call dep", codes.Error, attrs{
			"breakwater.dependency": "dep", "breakwater.attempt": int64(1),
			"breakwater.outcome": "failure", "error.type": "failure",
		}},
	}, r.views(t))
}

func TestTracerEndsSpansOfAGoexit(t *testing.T) {
	t.Parallel()
	r := record(t)
	p := pipeline(t, "dep", r.tracer(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = policy.Do(r.ctx, p, func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
	}()
	<-done
	vs := r.views(t)
	require.Len(t, vs, 2)
	assert.Equal(t, "panic", vs[0].attrs["error.type"])
}

// What the function starts is a child of its attempt.
func TestTracerPutsTheAttemptIntoTheContext(t *testing.T) {
	t.Parallel()
	r := record(t)
	p := pipeline(t, "dep", r.tracer(t))
	_, err := policy.Do(r.ctx, p, func(ctx context.Context) (string, error) {
		_, span := r.provider.Tracer("client").Start(ctx, "GET")
		span.End()
		return "", nil
	})
	require.NoError(t, err)
	spans := r.Started()
	require.Len(t, spans, 4)
	assert.Equal(t, "attempt dep", spans[2].Name())
	assert.Equal(t, spans[2].SpanContext().SpanID(), spans[3].Parent().SpanID())
}

// A sampler sees the dependency.
func TestTracerGivesTheDependencyToTheSampler(t *testing.T) {
	t.Parallel()
	s := &askedSampler{Sampler: sdktrace.AlwaysSample()}
	tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(s)), Always: true})
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), pipeline(t, "dep", tr), script())
	require.NoError(t, err)
	assert.Equal(t, []string{"call dep", "attempt dep"}, s.names)
	for _, got := range s.attrs {
		assert.Equal(t, []attribute.KeyValue{attribute.String("breakwater.dependency", "dep")}, got)
	}
}

type askedSampler struct {
	sdktrace.Sampler

	names []string
	attrs [][]attribute.KeyValue
}

func (s *askedSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.names = append(s.names, p.Name)
	s.attrs = append(s.attrs, p.Attributes)
	return s.Sampler.ShouldSample(p)
}

func TestTracerFollowsOnlyWhatIsRecorded(t *testing.T) {
	t.Parallel()
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	dropping := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	tests := []struct {
		name   string
		ctx    func(context.Context) context.Context
		always bool
		want   int
	}{
		{name: "no parent"},
		{name: "no parent, always", always: true, want: 2},
		{name: "remote parent", ctx: func(ctx context.Context) context.Context {
			return trace.ContextWithRemoteSpanContext(ctx, remote)
		}},
		{name: "remote parent, always", always: true, want: 2, ctx: func(ctx context.Context) context.Context {
			return trace.ContextWithRemoteSpanContext(ctx, remote)
		}},
		{name: "dropped parent", ctx: func(ctx context.Context) context.Context {
			ctx, span := dropping.Tracer("test").Start(ctx, "dropped")
			span.End()
			return ctx
		}},
		{name: "dropped parent, always", always: true, ctx: func(ctx context.Context) context.Context {
			ctx, span := dropping.Tracer("test").Start(ctx, "dropped")
			span.End()
			return ctx
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := tracetest.NewSpanRecorder()
			tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
			tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: tp, Always: tt.always})
			require.NoError(t, err)
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx(ctx)
			}
			_, err = policy.Do(ctx, pipeline(t, "dep", tr), script())
			require.NoError(t, err)
			assert.Len(t, rec.Ended(), tt.want)
		})
	}
}

// The decision to drop a root reaches the spans below it: without it each of them
// would be a trace of its own, sampled anew.
func TestTracerPassesOnADroppedRoot(t *testing.T) {
	t.Parallel()
	rec := tracetest.NewSpanRecorder()
	first := &firstDropped{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec), sdktrace.WithSampler(sdktrace.ParentBased(first)))
	tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: tp, Always: true})
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), pipeline(t, "dep", tr, retries{max: 2}), func(ctx context.Context) (string, error) {
		assert.True(t, trace.SpanContextFromContext(ctx).IsValid())
		_, span := tp.Tracer("client").Start(ctx, "GET")
		span.End()
		return "", errSick
	})
	require.ErrorIs(t, err, errSick)
	assert.Equal(t, 1, first.asked, "about the root only")
	assert.Empty(t, rec.Started())
}

// A decision that those further down can see already needs no help.
func TestTracerPassesOnOnlyNewDecisions(t *testing.T) {
	t.Parallel()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: tp, Always: true})
	require.NoError(t, err)

	ctx := unsampled(t.Context())
	got, span := tr.StartCall(ctx, "dep")
	assert.Nil(t, span)
	assert.Equal(t, ctx, got, "the parent is dropped, too")

	sampled := trace.SpanContextFromContext(ctx).WithTraceFlags(trace.FlagsSampled)
	got, span = tr.StartCall(trace.ContextWithRemoteSpanContext(ctx, sampled), "dep")
	require.NotNil(t, span)
	sc := trace.SpanContextFromContext(got)
	assert.Equal(t, sampled.TraceID(), sc.TraceID())
	assert.False(t, sc.IsSampled())
	actx, attempt := span.StartAttempt(got, 1)
	assert.Nil(t, attempt)
	assert.Equal(t, got, actx)
	span.Event(policy.Event{Kind: policy.EventRetry})
	span.End(policy.CallEnd{})
}

// firstDropped drops the first root and samples the others.
type firstDropped struct{ asked int }

func (s *firstDropped) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if s.asked++; s.asked == 1 {
		return sdktrace.NeverSample().ShouldSample(p)
	}
	return sdktrace.AlwaysSample().ShouldSample(p)
}

func (*firstDropped) Description() string { return "first dropped" }

func TestTracerWithoutSDK(t *testing.T) {
	t.Parallel()
	tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: noop.NewTracerProvider(), Always: true})
	require.NoError(t, err)
	ctx, span := tr.StartCall(t.Context(), "dep")
	assert.Nil(t, span)
	assert.Equal(t, t.Context(), ctx)
}

func TestTracerConfig(t *testing.T) {
	t.Parallel()
	tr, err := otelx.NewTracer(otelx.TracerConfig{Always: true})
	require.NoError(t, err)
	assert.True(t, tr.Config().Always)
	assert.Equal(t, otel.GetTracerProvider(), tr.Config().TracerProvider, "nil is the global one")

	// The config, the tracer and policy.Trace may stand in the same place.
	r := record(t)
	for _, pol := range []policy.Policy{otelx.TracerConfig{TracerProvider: r.provider}, r.tracer(t), policy.Trace(r.tracer(t))} {
		_, err := policy.Do(r.ctx, pipeline(t, "dep", pol), script())
		require.NoError(t, err)
	}
	assert.Len(t, r.Ended(), 6)
}

// A TracerProvider or span processor that panics harms no call.
func TestTracerSurvivesPanics(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"start call", "start attempt", "end attempt", "end call"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := record(t)
			r.provider.RegisterSpanProcessor(panicking{at: at})
			p := pipeline(t, "dep", r.tracer(t), retries{max: 2})
			got, err := policy.Do(r.ctx, p, script(errSick))
			require.NoError(t, err)
			assert.Equal(t, "fresh", got)
			assert.Equal(t, uint64(2), attemptsOf(p))
		})
	}
	t.Run("while a panic passes", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		r.provider.RegisterSpanProcessor(panicking{at: "end attempt"})
		p := pipeline(t, "dep", r.tracer(t))
		require.PanicsWithValue(t, "boom", func() {
			_, _ = policy.Do(r.ctx, p, func(context.Context) (string, error) { panic("boom") })
		})
	})
}

func attemptsOf(p *policy.Pipeline) (n uint64) {
	for _, c := range p.Snapshot().Attempts {
		n += c
	}
	return n
}

// panicking is a span processor that panics at one place.
type panicking struct{ at string }

func (p panicking) is(what string, s sdktrace.ReadOnlySpan) {
	if what+" "+s.Name() == p.at+" dep" {
		panic(what)
	}
}

func (p panicking) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { p.is("start", s) }
func (p panicking) OnEnd(s sdktrace.ReadOnlySpan)                       { p.is("end", s) }
func (panicking) Shutdown(context.Context) error                        { return nil }
func (panicking) ForceFlush(context.Context) error                      { return nil }

func TestTracerConcurrentSafe(t *testing.T) {
	t.Parallel()
	r := record(t)
	tr := r.tracer(t)
	const pipelines, calls = 8, 50
	done := make(chan struct{})
	for i := range pipelines {
		p := pipeline(t, string(rune('a'+i)), tr, retries{max: 2})
		go func() {
			defer func() { done <- struct{}{} }()
			for range calls {
				_, _ = policy.Do(r.ctx, p, script(errSick))
			}
		}()
	}
	for range pipelines {
		<-done
	}
	assert.Len(t, r.Ended(), pipelines*calls*3)
}
