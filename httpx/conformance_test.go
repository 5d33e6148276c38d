package httpx_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
)

// Whatever becomes of a request, over both protocols and real sockets.
func TestTransportConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			conformance.Run(t, conformance.Adapter{
				Pool: true,
				Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
					t.Helper()
					next, url, stop := farEnd(t, proto, c)
					client := &http.Client{Transport: httpx.Transport(p, next)}
					return func(ctx context.Context) error { return visit(ctx, client, url, c) }, stop
				},
			})
		})
	}
}

// farEnd starts a server that goes the way of c.
func farEnd(t *testing.T, proto string, c conformance.Case) (next http.RoundTripper, url string, stop func()) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch c {
		case conformance.Failure:
			w.WriteHeader(http.StatusInternalServerError)
		case conformance.Slow:
			time.Sleep(conformance.Slowness)
		case conformance.Canceled, conformance.Deadline:
			<-r.Context().Done()
		case conformance.Abandoned:
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // until the client has hung up
		case conformance.Refused:
			assert.Fail(t, "the request was sent")
		case conformance.Success, conformance.Panic, conformance.Gone:
		}
		_, _ = io.WriteString(w, "all of it")
	}))
	s.EnableHTTP2 = proto == "HTTP/2.0"
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	next = s.Client().Transport
	stop = func() {
		s.Client().CloseIdleConnections()
		s.Close()
	}
	switch c { //nolint:exhaustive // the others need nothing more
	case conformance.Panic:
		next = tripper(func(*http.Request) (*http.Response, error) { panic("boom") })
	case conformance.Gone:
		_ = visit(t.Context(), s.Client(), s.URL, conformance.Success) // it has been there
		stop()
		stop = func() {}
	}
	return next, s.URL, stop
}

// visit gets the page, or half of it.
func visit(ctx context.Context, client *http.Client, url string, c conformance.Case) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if c == conformance.Abandoned {
		_, err = io.ReadFull(resp.Body, make([]byte, len("half")))
		return err
	}
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}
