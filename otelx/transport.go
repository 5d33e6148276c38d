package otelx

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Transport returns a [http.RoundTripper] that tells spans what only the request knows:
// the attempt's span of the [Tracer], and the client's span inside it if there is one,
// get server.address, server.port and, from the second attempt, http.request.resend_count
// as OpenTelemetry's conventions have them. It belongs innermost, below httpx and
// below otelhttp. A nil next means [http.DefaultTransport]. The request is not changed,
// and a request that nobody records costs a look into its context.
func Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return &transport{next}
}

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	describe(req)
	return t.next.RoundTrip(req)
}

// describe adds to the spans of a request.
func describe(req *http.Request) {
	defer dropPanic()
	span := trace.SpanFromContext(req.Context())
	if !span.IsRecording() || req.URL == nil {
		return
	}
	attrs := serverOf(req.URL)
	if a := attemptOf(req.Context()); a != nil {
		if a.number > 1 {
			attrs = append(attrs, semconv.HTTPRequestResendCount(a.number-1))
		}
		if a.span != span {
			a.span.SetAttributes(attrs...)
		}
	}
	span.SetAttributes(attrs...)
}

// serverOf returns who a request goes to. Userinfo, path and query stay behind.
func serverOf(u *url.URL) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 3)
	attrs = append(attrs, semconv.ServerAddress(u.Hostname()))
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
	case u.Scheme == "https":
		port = 443
	case u.Scheme == "http":
		port = 80
	default:
		return attrs
	}
	return append(attrs, semconv.ServerPort(port))
}

type attemptKey struct{}

// attemptOf returns the innermost attempt of a context that is recorded.
func attemptOf(ctx context.Context) *attemptSpan {
	a, _ := ctx.Value(attemptKey{}).(*attemptSpan)
	return a
}
