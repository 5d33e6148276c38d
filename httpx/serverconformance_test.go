package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
)

// Whatever becomes of a request, over both protocols and real sockets: the handler is what the
// pipeline guards.
func TestServerConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			conformance.Run(t, conformance.Adapter{
				Skip: map[conformance.Case]string{conformance.Gone: "a server that is gone counts nothing"},
				Figures: map[conformance.Case]conformance.Figures{
					// The client's mark tells the server that it is a deadline; see below
					// for one that does not.
					conformance.Deadline: {Calls: 1, Failures: 1},
				},
				Check: func(t *testing.T, c conformance.Case, err error) bool {
					t.Helper()
					if c == conformance.Refused {
						require.EqualError(t, err, "status 503")
					}
					return c == conformance.Refused
				},
				Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
					t.Helper()
					return guardedServer(t, proto, p, c, true)
				},
			})
		})
	}
}

// A deadline that the client keeps to itself is, to the server, a client that has gone.
func TestServerConformanceOfStrangers(t *testing.T) { //nolint:paralleltest // it counts goroutines
	skip := map[conformance.Case]string{}
	for _, c := range conformance.Cases() {
		if c != conformance.Deadline {
			skip[c] = "as for those who are trusted"
		}
	}
	conformance.Run(t, conformance.Adapter{
		Skip:    skip,
		Figures: map[conformance.Case]conformance.Figures{conformance.Deadline: {}},
		Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
			t.Helper()
			return guardedServer(t, protocols[0], p, c, false)
		},
	})
}

// guardedServer starts a server whose handler goes the way of c behind p.
func guardedServer(t *testing.T, proto string, p *policy.Pipeline, c conformance.Case, trusted bool) (call func(context.Context) error, stop func()) {
	t.Helper()
	h := guarded(t, p, httpx.ServerConfig{Trust: func(*http.Request) bool { return trusted }}, httpx.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		switch c {
		case conformance.Failure:
			return errBoom
		case conformance.Slow:
			time.Sleep(conformance.Slowness)
		case conformance.Canceled, conformance.Deadline:
			<-r.Context().Done()
			return r.Context().Err()
		case conformance.Panic:
			panic(http.ErrAbortHandler)
		case conformance.Abandoned:
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // until the client has hung up
			return r.Context().Err()
		case conformance.Refused:
			assert.Fail(t, "the handler was called")
		case conformance.Success, conformance.Gone:
		}
		_, err := io.WriteString(w, "all of it")
		return err
	}))
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = proto == "HTTP/2.0"
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	client := s.Client()
	return func(ctx context.Context) error { return visitMarked(ctx, client, s.URL, c) }, func() {
		client.CloseIdleConnections()
		s.Close()
	}
}

// visitMarked gets the page, or half of it, and says for how long it waits: for half as long as it
// does, so that the server's deadline passes first and not at the same moment.
func visitMarked(ctx context.Context, client *http.Client, url string, c conformance.Case) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set(hop.TimeoutHeader, hop.FormatTimeout(time.Until(deadline)/2))
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
	_, err = io.Copy(io.Discard, resp.Body)
	switch {
	case err == nil && resp.StatusCode == http.StatusGatewayTimeout:
		return errors.Join(errors.New("the server was faster"), context.DeadlineExceeded)
	case err == nil && resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}
