package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// callerFunc makes a caller of a function.
type callerFunc func(ctx context.Context, route int, url string, phase int) (answer, error)

func (f callerFunc) call(ctx context.Context, route int, url string, phase int) (answer, error) {
	return f(ctx, route, url, phase)
}

func bubbleService(t *testing.T, slots int, cl caller) *service {
	t.Helper()
	s, err := script.Incident(10*time.Second, 30*ms)
	require.NoError(t, err)
	svc := &service{
		server: &server{done: make(chan struct{})}, clock: &clock{}, script: s, caller: cl,
		deps: [routes]string{"http://stock", "http://price"}, slots: make(chan struct{}, slots),
	}
	svc.clock.start(time.Now())
	return svc
}

func get(ctx context.Context, h http.Handler, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
	return rec
}

func TestServiceAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path string
		answer     answer
		err        error
		status     int
		body       string
		degraded   string
		route      int
	}{
		{"real", "/stock", answer{body: []byte("seven")}, nil, http.StatusOK, "seven", "", routeStock},
		{"of the neighbour", "/price", answer{body: []byte("cheap")}, nil, http.StatusOK, "cheap", "", routePrice},
		{"a fallback", "/stock", answer{body: []byte("maybe"), degraded: true}, nil, http.StatusOK, "maybe", "1", routeStock},
		{"failed", "/stock", answer{}, errors.New("no luck"), http.StatusBadGateway, "no luck\n", "", routeStock},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				svc := bubbleService(t, 1, callerFunc(func(_ context.Context, route int, url string, phase int) (answer, error) {
					assert.Equal(t, tt.route, route)
					assert.Equal(t, "http:/"+tt.path, url)
					assert.Equal(t, script.SlowPhase, phase)
					return tt.answer, tt.err
				}))
				time.Sleep(3 * time.Second)
				rec := get(t.Context(), svc, tt.path)
				assert.Equal(t, tt.status, rec.Code)
				assert.Equal(t, tt.body, rec.Body.String())
				assert.Equal(t, tt.degraded, rec.Header().Get(degradedHeader))
				assert.EqualValues(t, 1, svc.total(tt.route, script.SlowPhase))
				assert.EqualValues(t, 1, svc.total(tt.route, everyPhase()...))
				assert.Zero(t, svc.total(1-tt.route, everyPhase()...))
			})
		})
	}
}

// TestServiceRequestsWaitForASlot pins why a slow dependency hurts its neighbour:
// requests of both routes wait in one line. A request counts for the phase in which
// it arrived, and leaves the line with its user.
func TestServiceRequestsWaitForASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		phases := make(chan int, 5)
		svc := bubbleService(t, 2, callerFunc(func(_ context.Context, _ int, _ string, phase int) (answer, error) {
			phases <- phase
			time.Sleep(time.Second)
			return answer{}, nil
		}))
		time.Sleep(2 * time.Second) // a second and a half are left of the first phase
		var wg sync.WaitGroup
		ends := make([]time.Duration, 4)
		for i := range ends {
			path := routePaths[i%routes]
			wg.Go(func() {
				get(t.Context(), svc, path)
				ends[i] = svc.clock.now()
			})
			synctest.Wait()
		}
		impatient, leave := context.WithTimeout(t.Context(), 500*ms)
		defer leave()
		get(impatient, svc, "/price")
		assert.Equal(t, 2500*ms, svc.clock.now(), "the user leaves when he has had enough")
		assert.EqualValues(t, 2, svc.waiting.Load())
		wg.Wait()
		assert.Equal(t, []time.Duration{3 * time.Second, 3 * time.Second, 4 * time.Second, 4 * time.Second}, ends)
		require.Len(t, phases, len(ends), "the one that left made no call")
		for range ends {
			assert.Equal(t, script.HealthyPhase, <-phases, "it counts for the phase in which it arrived")
		}
		assert.EqualValues(t, 5, svc.total(routeStock, 0)+svc.total(routePrice, 0))
	})
}

func TestServiceStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		svc := bubbleService(t, 0, nil) // nobody ever gets a slot
		var wg sync.WaitGroup
		wg.Go(func() { get(t.Context(), svc, "/stock") })
		synctest.Wait()
		close(svc.done)
		wg.Wait()
		assert.Zero(t, svc.waiting.Load())
	})
}

func TestServiceDoesNotCountBeforeTheLoad(t *testing.T) {
	t.Parallel()
	svc := bubbleService(t, 1, callerFunc(func(_ context.Context, _ int, _ string, phase int) (answer, error) {
		assert.Equal(t, -1, phase, "which the dependency does not count either")
		return answer{}, nil
	}))
	svc.clock = &clock{}
	assert.Equal(t, http.StatusOK, get(t.Context(), svc, "/stock").Code)
	assert.Zero(t, svc.total(routeStock, everyPhase()...))
}

// tripFunc makes a transport of a function.
type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// TestNaiveTries pins what the unprotected world does: three tries of 800 ms each,
// one right after the other, whether or not somebody waits for the answer.
func TestNaiveTries(t *testing.T) {
	t.Parallel()
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for _, tt := range []struct {
		name  string
		trips []tripFunc
		want  string
		err   string
		takes time.Duration
	}{
		{"the first is enough", []tripFunc{
			func(*http.Request) (*http.Response, error) { return respond(200, "yes"), nil },
		}, "yes", "", 0},
		{"a failure and a hang, then an answer", []tripFunc{
			func(*http.Request) (*http.Response, error) { return respond(500, ""), nil }, hang,
			func(*http.Request) (*http.Response, error) { return respond(200, "at last"), nil },
		}, "at last", "", 800 * ms},
		{"three hangs", []tripFunc{hang, hang, hang}, "", "context deadline exceeded", 2400 * ms},
		{"three failures", []tripFunc{
			func(*http.Request) (*http.Response, error) { return respond(503, ""), nil },
			func(*http.Request) (*http.Response, error) { return respond(500, ""), nil },
			func(*http.Request) (*http.Response, error) { return respond(500, ""), nil },
		}, "", "Internal Server Error", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left, leave := context.WithCancel(t.Context())
				leave()
				n := newNaive()
				tries := 0
				n.client.Transport = tripFunc(func(r *http.Request) (*http.Response, error) {
					tries++
					assert.Equal(t, "2", r.Header.Get(phaseHeader))
					return tt.trips[tries-1](r)
				})
				begin := time.Now()
				a, err := n.call(left, routeStock, "http://stock", script.FailingPhase)
				assert.Equal(t, tt.takes, time.Since(begin))
				assert.Equal(t, len(tt.trips), tries)
				assert.Equal(t, tt.want, string(a.body))
				if tt.err == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, tt.err)
				}
			})
		})
	}
}
