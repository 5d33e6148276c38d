package clienttest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers the first requests with 503, as many as failures, and the rest with what
// they sent, if anything. It counts them.
func server(t *testing.T, failures int64) (url string, next *http.Transport, seen *atomic.Int64) {
	t.Helper()
	seen = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if seen.Add(1) <= failures {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet {
			body = []byte("answer")
		}
		_, _ = w.Write(body)
	}))
	next = &http.Transport{}
	t.Cleanup(func() {
		next.CloseIdleConnections()
		s.Close()
	})
	return s.URL, next, seen
}

// pipeline is what an application would have, with quick retries, and a bulkhead whose
// permits come back only if bodies are closed.
func pipeline(t *testing.T, attempts int) (*policy.Pipeline, *bulkhead.Permits) {
	t.Helper()
	permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	p, err := policy.New("vendor", permits, breaker.Config{MinCalls: 1000},
		retry.Config{MaxAttempts: attempts, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, Budget: retry.NoBudget{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.Zero(t, permits.InFlight(), "permits are out") })
	return p, permits
}

// full takes the permit, so that every request is refused.
func full(t *testing.T, permits *bulkhead.Permits) {
	t.Helper()
	require.True(t, permits.TryAcquire())
	t.Cleanup(permits.Release)
}

// refusals returns how many attempts have been refused.
func refusals(p *policy.Pipeline) (n uint64) {
	for _, ps := range p.Snapshot().Policies {
		for _, c := range ps.Rejected {
			n += c
		}
	}
	return n
}

const forever = 1 << 40
