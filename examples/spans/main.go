// Command spans prints what a trace shows of four calls: one that succeeds, one that is
// tried again, one that is refused, and one that a fallback answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

var errNoAnswer = errors.New("no answer")

func run(ctx context.Context) error {
	rec := newRecorder() // in a service: an OTLP exporter, see docs/howto/metrics-with-opentelemetry.md
	// region setup
	var registry policy.Registry
	registry.Use(otelx.TracerConfig{TracerProvider: rec.spans, LoggerProvider: rec})
	inventory, err := registry.New("inventory",
		retry.Config{BaseDelay: 50 * time.Millisecond, Jitter: retry.NoJitter},
		breaker.Config{ConsecutiveFailures: 3, OpenFor: 5 * time.Second},
	)
	if err != nil {
		return err
	}
	reviews, err := registry.New("reviews", fallback.Value("no reviews yet"))
	if err != nil {
		return err
	}
	// endregion
	for _, scene := range []struct {
		name   string
		p      *policy.Pipeline
		errs   []error // of the attempts, one after the other
		answer string
	}{
		{"guarded", inventory, nil, "in stock"},
		{"retried", inventory, []error{errNoAnswer}, "in stock"},
		{"refused", inventory, nil, ""},
		{"degraded", reviews, []error{errNoAnswer}, "five stars"},
	} {
		if scene.name == "refused" {
			outage(ctx, inventory)
		}
		// region call
		ctx, request := rec.spans.Tracer("shop").Start(ctx, scene.name)
		answer, err := policy.Do(ctx, scene.p, func(context.Context) (string, error) {
			time.Sleep(20 * time.Millisecond) // the dependency
			if len(scene.errs) > 0 {
				err := scene.errs[0]
				scene.errs = scene.errs[1:]
				return "", err
			}
			return scene.answer, nil
		})
		request.End()
		// endregion
		if err != nil {
			answer = err.Error()
		}
		fmt.Fprintf(os.Stdout, "%s: %s\n", scene.name, answer)
		rec.print(os.Stdout, request.SpanContext().SpanID())
		fmt.Fprintln(os.Stdout)
	}
	return registry.Close(ctx)
}

// outage makes calls fail until the breaker opens. Nobody records them.
func outage(ctx context.Context, p *policy.Pipeline) {
	ctx = trace.ContextWithSpan(ctx, nil)
	for range 3 {
		_, _ = policy.Do(policy.WithCall(ctx, policy.Call{NoRetry: true}), p, func(context.Context) (string, error) {
			return "", errNoAnswer
		})
	}
}
