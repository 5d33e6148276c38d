package load_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
	"github.com/breakwater-go/breakwater/config"
)

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// run sends a load to a server.
func run(ctx context.Context, t *testing.T, url string, c load.Config, stages ...load.Stage) *load.Report {
	t.Helper()
	var err error
	c.Target, err = load.NewTarget(ctx, url, false, net.DefaultResolver)
	require.NoError(t, err)
	c.Schedule, err = load.NewSchedule(stages...)
	require.NoError(t, err)
	r, err := load.Run(ctx, c, nil)
	require.NoError(t, err)
	return r
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

func TestRunBurstIsAtOnce(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	all := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == 50 {
			close(all)
		}
		<-all // nobody is answered before all are here
		ok(w, r)
	})
	r := run(t.Context(), t, url, load.Config{}, load.Stage{Burst: 50})
	assert.Equal(t, 50, r.Passed)
	assert.Equal(t, 50, r.PeakInFlight)
	assert.Equal(t, 50, r.Timeline[0].Passed)
}

func TestRunKeepsTheRate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var at []time.Time
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		at = append(at, time.Now())
		mu.Unlock()
		ok(w, r)
	})
	began := time.Now()
	r := run(t.Context(), t, url, load.Config{}, load.Stage{From: 50, To: 50, For: 2 * time.Second})
	assert.Equal(t, 100, r.Passed)
	assert.Equal(t, 50, r.Timeline[0].Offered)
	assert.Equal(t, 50, r.Timeline[1].Offered)
	assert.InDelta(t, 50, r.AdmittedPerSecond, 0.01)
	require.Len(t, at, 100)
	// A busy machine may hold them up, but none comes before its time.
	slices.SortFunc(at, time.Time.Compare)
	for k, arrived := range at {
		assert.GreaterOrEqual(t, arrived.Sub(began), time.Duration(k)*20*time.Millisecond, "request %d", k)
	}
}

func TestRunRampRises(t *testing.T) {
	t.Parallel()
	r := run(t.Context(), t, serve(t, ok), load.Config{}, load.Stage{From: 20, To: 100, For: 2 * time.Second})
	assert.Equal(t, 120, r.Passed)
	assert.InDelta(t, 40, r.Timeline[0].Offered, 1)
	assert.InDelta(t, 80, r.Timeline[1].Offered, 1)
	assert.Len(t, r.Steps, 10)
}

func TestRunSendsWhatItIsTold(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[http.Request]
	var text atomic.Value
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		got.Store(r)
		text.Store(b.String())
		ok(w, r)
	})
	run(t.Context(), t, url+"/captcha?x=1", load.Config{Body: []byte("hello"), Header: http.Header{"X-A": {"1", "2"}, "Host": {"shop.example"}}}, load.Stage{Burst: 2})
	r := got.Load()
	require.NotNil(t, r)
	assert.Equal(t, "/captcha?x=1", r.URL.String())
	assert.Equal(t, http.MethodPost, r.Method, "since there is a body")
	assert.Equal(t, "hello", text.Load())
	assert.Equal(t, []string{"1", "2"}, r.Header["X-A"])
	assert.Equal(t, "shop.example", r.Host)
	assert.Equal(t, "breakwater-load", r.Header.Get("User-Agent"))
	assert.Empty(t, r.Header.Get("X-Vegeta-Seq"))
}

func TestRunInterruptedReportsWhatThereIs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	var n atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 3:
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		case 5:
			defer cancel()
			ok(w, r)
		default:
			ok(w, r)
		}
	})
	r := run(ctx, t, url, load.Config{Timeout: time.Hour}, load.Stage{From: 20, To: 20, For: time.Second}, load.Stage{For: time.Hour}, load.Stage{Burst: 1})
	assert.True(t, r.Interrupted)
	assert.Equal(t, 1, r.Cut, "what hung was given up")
	assert.GreaterOrEqual(t, r.Passed, 4)
	assert.Less(t, r.Sent, r.Planned)
	assert.Less(t, r.Seconds, 60.0)
	assert.Zero(t, r.Errors)
	var out bytes.Buffer
	require.NoError(t, load.WriteText(&out, r))
	assert.Contains(t, out.String(), "interrupted after")
	assert.Contains(t, out.String(), "cut off")
}

func TestRunInterruptedInAPauseEndsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { ok(w, r); cancel() })
	r := run(ctx, t, url, load.Config{}, load.Stage{Burst: 1}, load.Stage{For: time.Hour}, load.Stage{Burst: 1})
	assert.True(t, r.Interrupted)
	assert.Equal(t, 1, r.Sent)
}

func TestRunDoesNotLeaveTheTarget(t *testing.T) {
	t.Parallel()
	var strayed atomic.Int32
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) { strayed.Add(1); ok(w, r) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/home":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			ok(w, r)
		}
	})
	one := load.Stage{Burst: 1}
	r := run(t.Context(), t, url+"/away", load.Config{}, one)
	assert.Equal(t, map[string]int{"302": 1}, r.Statuses, "the redirect is the answer")
	r = run(t.Context(), t, url+"/home", load.Config{Redirects: 3}, one)
	assert.Equal(t, map[string]int{"200": 1}, r.Statuses)
	r = run(t.Context(), t, url+"/away", load.Config{Redirects: 3}, one)
	require.Len(t, r.ErrorKinds, 1)
	assert.Equal(t, "a redirect leads away from the target, to "+strings.TrimPrefix(elsewhere, "http://"), r.ErrorKinds[0].Text)
	r = run(t.Context(), t, url+"/loop", load.Config{Redirects: 3}, one)
	assert.Equal(t, "more than 3 redirects", r.ErrorKinds[0].Text)
	assert.Zero(t, strayed.Load())
}

func TestRunTellsErrorsApart(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-done
		case "/drop":
			panic(http.ErrAbortHandler)
		case "/short":
			w.Header().Set("Content-Length", "100")
			ok(w, r)
		}
	})
	t.Cleanup(func() { close(done) })
	for path, want := range map[string]string{"/hang": "no answer within 100ms", "/drop": "EOF", "/short": "unexpected EOF"} {
		patience := time.Minute
		if path == "/hang" {
			patience = 100 * time.Millisecond
		}
		r := run(t.Context(), t, url+path, load.Config{Timeout: patience}, load.Stage{Burst: 1})
		assert.Equal(t, []load.ErrorKind{{Text: want, Count: 1}}, r.ErrorKinds, path)
		assert.Equal(t, 1, r.Errors)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed in the next line
	require.NoError(t, err)
	require.NoError(t, l.Close())
	r := run(t.Context(), t, "http://"+l.Addr().String(), load.Config{}, load.Stage{Burst: 3})
	assert.Equal(t, []load.ErrorKind{{Text: "connection refused", Count: 3}}, r.ErrorKinds)
}

func TestRunSeesEmptyAnswers(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	r := run(t.Context(), t, url, load.Config{}, load.Stage{Burst: 2})
	assert.Equal(t, 2, r.Empty)
	var out bytes.Buffer
	require.NoError(t, load.WriteText(&out, r))
	assert.Contains(t, out.String(), "2 answers of 200 have no body")
	assert.Zero(t, run(t.Context(), t, url, load.Config{Method: http.MethodHead}, load.Stage{Burst: 2}).Empty)
}

func TestRunBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	var now, peak atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > peak.Load() {
			peak.Store(n)
		}
		time.Sleep(20 * time.Millisecond) // against a real server there is no virtual time
		now.Add(-1)
		ok(w, r)
	})
	r := run(t.Context(), t, url, load.Config{Concurrency: 2}, load.Stage{From: 200, To: 200, For: 500 * time.Millisecond})
	assert.Equal(t, 100, r.Passed)
	assert.Equal(t, 2, r.PeakInFlight)
	assert.LessOrEqual(t, peak.Load(), int32(2))
	assert.Greater(t, r.Latency.All.Max, 300.0, "the wait for the bound counts")
	var out bytes.Buffer
	require.NoError(t, load.WriteText(&out, r))
	assert.Contains(t, out.String(), "(--concurrency 2 was reached)")
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	s, err := load.NewSchedule(load.Stage{Burst: 2000})
	require.NoError(t, err)
	err = load.Config{Schedule: s, Timeout: -1, Redirects: -1, Method: "G T", Header: http.Header{"a b": {"x"}, "X": {"a\nb"}}}.Validate()
	for _, want := range []string{"timeout: -1ns", "concurrency: 1000 of the 2000 requests", "redirects: -1", `method: "G T"`, `header: "a b"`, `header: "X"`} {
		assert.ErrorContains(t, err, want)
	}
	assert.NoError(t, load.Config{Schedule: s, Concurrency: 2000}.Validate())
}

func TestCSVIsWhatSizeReads(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond)
		ok(w, r)
	})
	r := run(t.Context(), t, url, load.Config{}, load.Stage{Burst: 3}, load.Stage{For: 100 * time.Millisecond},
		load.Stage{From: 50, To: 50, For: 400 * time.Millisecond}, load.Stage{From: 50, To: 200, For: time.Second})
	var out bytes.Buffer
	require.NoError(t, load.WriteCSV(&out, r))
	steps, err := config.ReadLoadTest(&out)
	require.NoError(t, err)
	require.Len(t, steps, 11, "the rate and ten parts of the ramp; the burst and the pause take no part")
	for i, s := range steps {
		assert.InDelta(t, r.Steps[i].Throughput, s.Throughput, 1e-3)
		assert.InDelta(t, r.Steps[i].Latency, float64(s.Latency.Microseconds())/1000, 0.01)
		assert.GreaterOrEqual(t, s.Latency, 5*time.Millisecond)
		assert.GreaterOrEqual(t, s.Concurrency, 1)
		assert.Zero(t, s.Errors)
	}
	best := config.BestConcurrency(steps)
	assert.Positive(t, best.Throughput)
	size, err := config.Size(config.Measured{Best: best.Concurrency, Latency: best.Latency, P99: best.P99})
	require.NoError(t, err)
	assert.NotEmpty(t, size.Policies)
}

func TestWriteHTMLNeedsNothingElse(t *testing.T) {
	t.Parallel()
	url := serve(t, ok)
	r := run(t.Context(), t, url+"/?q=<script>", load.Config{}, load.Stage{Burst: 3})
	var out bytes.Buffer
	require.NoError(t, load.WriteHTML(&out, r))
	page := out.String()
	for _, no := range []string{"<script", "src=", "href=", "@import", "url("} {
		assert.NotContains(t, page, no)
	}
	assert.Contains(t, page, "default-src 'none'")
	assert.Contains(t, page, `class="passed"`)
	assert.Contains(t, page, "burst of 3")
}

func TestBar(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "[##########..........] 5s/10s  passed 40  429 8  other 1  errors 1  in flight 2", load.Bar(load.Progress{
		Elapsed: 5 * time.Second, Length: 10 * time.Second, Requests: 100, Passed: 40, Refused: 8, Other: 1, Errors: 1, OnTheWay: 2,
	}))
	assert.Contains(t, load.Bar(load.Progress{Requests: 50, Passed: 25, Refused: 25}), "[####################] 0s/0s")
}
