package otelx

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/policy"
)

// The attributes of spans. There are no semantic conventions for resilience, so all
// but error.type have our own prefix.
const (
	keyDependency     = attribute.Key("breakwater.dependency")
	keyOutcome        = attribute.Key("breakwater.outcome")
	keyAttempts       = attribute.Key("breakwater.attempts") // of the call: how many
	keyAttempt        = attribute.Key("breakwater.attempt")  // of an attempt: which
	keyDegraded       = attribute.Key("breakwater.degraded")
	keyPolicy         = attribute.Key("breakwater.policy")
	keyReason         = attribute.Key("breakwater.reason")
	keyRetryAfter     = attribute.Key("breakwater.retry_after")
	keyRejectedBy     = attribute.Key("breakwater.rejected_by")
	keyRetryDelay     = attribute.Key("breakwater.retry.delay")
	keyRetryStop      = attribute.Key("breakwater.retry.stop")
	keyWait           = attribute.Key("breakwater.wait")
	keyProbe          = attribute.Key("breakwater.probe")
	keyHedge          = attribute.Key("breakwater.hedge")
	keyHedgeDelay     = attribute.Key("breakwater.hedge.delay")
	keyResult         = attribute.Key("breakwater.result")
	keyFallbackPolicy = attribute.Key("breakwater.fallback.policy")
	keyFallbackFailed = attribute.Key("breakwater.fallback.failed")
)

// Values of error.type besides the names of outcomes.
const (
	errorRejected = "rejected"
	errorPanic    = "panic"
)

// errorType returns the error.type of an outcome, "" when it is no error. A caller
// that has given up is none, whether the attempt ran or not.
func errorType(k policy.Kind, err error) string {
	switch k {
	case policy.Success, policy.Canceled:
		return ""
	case policy.NotRun:
		switch {
		case errors.Is(err, policy.ErrRejected):
			return errorRejected
		case errors.Is(err, context.DeadlineExceeded):
			return policy.Timeout.String()
		case errors.Is(err, context.Canceled):
			return ""
		}
		return errorRejected // a failsafe-go policy refused
	default:
		return k.String()
	}
}

// fail marks a span as failed. Neither the error nor its text is recorded: it may
// hold what must not leave the process.
func fail(span trace.Span, attrs []attribute.KeyValue, errType string) []attribute.KeyValue {
	if errType == "" {
		return attrs
	}
	span.SetStatus(codes.Error, "")
	return append(attrs, semconv.ErrorTypeKey.String(errType))
}

// refusal describes a refusal of an attempt to the given dependency.
func refusal(attrs []attribute.KeyValue, dependency string, re *policy.RejectedError) []attribute.KeyValue {
	attrs = append(attrs, keyPolicy.String(re.Policy), keyReason.String(re.Reason.String()))
	if re.RetryAfter > 0 && re.RetryAfter != policy.Never {
		attrs = append(attrs, seconds(keyRetryAfter, re.RetryAfter))
	}
	if re.Dependency != dependency {
		// The attempt called through another pipeline, and that one refused.
		attrs = append(attrs, keyRejectedBy.String(re.Dependency))
	}
	return attrs
}

func seconds(k attribute.Key, d time.Duration) attribute.KeyValue {
	return k.Float64(d.Seconds())
}
