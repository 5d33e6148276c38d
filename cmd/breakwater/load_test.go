package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// captcha serves an endpoint with a limit of so many per second, in the shape of the
// incident: it begins with one token and stores one second's. The limit is made with the
// first request, so that a test which is slow to begin finds no tokens stored.
func captcha(t *testing.T, rate float64) string {
	t.Helper()
	limit := sync.OnceValue(func() *policy.Pipeline {
		p, err := policy.New("captcha", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: int(rate) + 1, Initial: 1})
		if err != nil {
			panic(err)
		}
		return p
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := policy.Do(r.Context(), limit(), func(context.Context) (struct{}, error) { return struct{}{}, nil })
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			if s, ok := re.RetryAfterSeconds(); ok {
				w.Header().Set("Retry-After", strconv.Itoa(s))
			}
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte("image"))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/captcha"
}

// runLoad runs the command and returns its result.
func runLoad(t *testing.T, args ...string) load.Report {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), append([]string{"load", "--json"}, args...), output{Out: &out, Err: &errOut})
	require.Equal(t, exitOK, code, errOut.String())
	assert.Regexp(t, `^load: .* requests\n$`, errOut.String(), "no progress bar where there is no terminal")
	var r load.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	return r
}

// slack is how many tokens there may be more, or fewer, since the machine was busy.
func slack(r load.Report, rate float64) float64 { return rate * r.Latency.All.Max / 1000 }

func TestLoadBurst(t *testing.T) {
	t.Parallel()
	r := runLoad(t, "--url", captcha(t, 1), "--burst", "50")
	// One, unless the machine takes a second for fifty requests.
	more := int(r.Latency.All.Max / 1000)
	assert.GreaterOrEqual(t, r.Passed, 1)
	assert.LessOrEqual(t, r.Passed, 1+more)
	assert.Equal(t, 50, r.Passed+r.Refused)
	assert.Equal(t, load.RetryAfter{Seen: r.Refused, On429: r.Refused, Min: 1, Max: 1}, r.RetryAfter)
}

// The runs of 2.5/s for 12 s at 1/s and 20/s for 10 s at 10/s, four times as fast.
func TestLoadRate(t *testing.T) {
	t.Parallel()
	slow, fast := captcha(t, 4), captcha(t, 40)
	r := runLoad(t, "--url", slow, "--rate", "10/s", "--for", "3s")
	assert.Equal(t, 30, r.Sent)
	assert.InDelta(t, 12, r.Passed, 1+slack(r, 4))
	r = runLoad(t, "--url", fast, "--rate", "80/s", "--for", "2500ms")
	assert.Equal(t, 200, r.Sent)
	assert.InDelta(t, 100, r.Passed, 2+slack(r, 40))
	assert.InDelta(t, 80, r.OfferedPerSecond, 0.1)
}

func TestLoadStagesHTMLAndCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stages, page, table := filepath.Join(dir, "stages.yaml"), filepath.Join(dir, "load.html"), filepath.Join(dir, "load.csv")
	require.NoError(t, os.WriteFile(stages, []byte("stages:\n- burst: 5\n- rate: 20/s\n  for: 500ms\n"), 0o600))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	t.Cleanup(s.Close)
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"load", "--url", s.URL, "--stages", stages, "--html", page, "--csv", table}, output{Out: &out, Err: &errOut})
	require.Equal(t, exitOK, code, errOut.String())
	assert.Contains(t, out.String(), "15 of 15 requests sent")
	assert.Contains(t, out.String(), "status: 15 x 200")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<svg")
	out.Reset()
	code = run(t.Context(), []string{"size", "--csv", table}, output{Out: &out, Err: &errOut})
	require.Equal(t, exitOK, code, errOut.String())
	assert.Contains(t, out.String(), "policies:")
}

func TestLoadInterruptedPrintsWhatItHas(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { once.Do(cancel) }))
	t.Cleanup(s.Close)
	var out, errOut bytes.Buffer
	code := run(ctx, []string{"load", "--url", s.URL, "--rate", "20/s", "--for", "1h"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitInterrupted, code)
	assert.Contains(t, out.String(), "of 72000 requests sent, interrupted after")
	assert.Contains(t, out.String(), "admitted:")
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("stages:\n- rate: 20/s\n"), 0o600))
	bursts := filepath.Join(dir, "bursts.yaml")
	require.NoError(t, os.WriteFile(bursts, []byte("stages:\n- burst: 5\n"), 0o600))
	const local = "--url http://127.0.0.1:1/"
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--burst 5", exitUsage, "--url"},
		{local, exitUsage, "want a load: one of --burst, --rate, --ramp and --stages"},
		{local + " --burst 5 --rate 5/s", exitUsage, "--burst and --rate: want one of them"},
		{local + " --burst 5 --for 5s", exitUsage, "--burst with --for"},
		{local + " --burst=-5", exitUsage, "want 1 to 1000000"},
		{local + " --rate 5/s", exitUsage, "--rate without --for"},
		{local + " --rate 5/s --for 0s", exitUsage, "--rate without --for"},
		{local + " --rate 5/s --for=-1s", exitUsage, "for: -1s: want more than 0"},
		{local + " --rate 0/s --for 1s", exitUsage, `--rate: "0/s": want more than 0`},
		{local + " --rate fast --for 1s", exitUsage, `--rate: "fast" is no rate`},
		{local + " --ramp 5 --for 1s", exitUsage, `--ramp: "5" is no ramp`},
		{local + " --burst 5 --timeout 0s", exitUsage, "--timeout 0s: want more than 0"},
		{local + " --burst 5 --csv x.csv", exitUsage, "--csv with --burst"},
		{local + " --stages " + bursts + " --csv x.csv", exitError, "which take no time"},
		{local + " --stages " + bad, exitError, "bad.yaml:2:3: rate: want for"},
		{local + " --stages " + bad + "x", exitError, "no such file"},
		{local + " --burst 5 --body " + bad + "x", exitError, "no such file"},
		{local + " --burst 5 --html " + dir, exitError, "is a directory"},
		{local + " --burst 5 -H a", exitError, `--header "a": want a name`},
		{local + " --burst 5 --concurrency 2", exitError, "concurrency: 2 of the 5 requests"},
		{"--url http://192.0.2.1/ --burst 5", exitError, "not a loopback address"},
		{"--url localhost:80 --burst 5", exitError, "is no address"},
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"load"}, strings.Fields(tt.args)...), output{Out: &out, Err: &errOut})
		assert.Equal(t, tt.code, code, tt.args)
		assert.Contains(t, errOut.String(), tt.want, tt.args)
		assert.Empty(t, out.String(), tt.args)
	}
}

func TestLoadWithoutAnAnswerFails(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"load", "--url", s.URL, "--burst", "3"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitError, code)
	assert.Contains(t, out.String(), "error: 3 x connection refused")
	assert.Contains(t, errOut.String(), "not a single answer")
}

// The example that the documentation shows.
func TestLoadReadsTheExample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../examples/load/stages.yaml")
	require.NoError(t, err)
	s, err := load.ReadStages("stages.yaml", data)
	require.NoError(t, err)
	assert.Equal(t, "burst of 50, pause of 5s, 2.5/s for 12s, pause of 5s, 10..100/s for 20s", s.String())
	assert.Equal(t, 42*time.Second, s.Length())
}

func TestLoadOverTLS(t *testing.T) {
	t.Parallel()
	var proto sync.Map
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto, true)
		_, _ = w.Write([]byte("ok"))
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of the client that does not trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	r := runLoad(t, "--url", s.URL, "--burst", "5", "--insecure")
	assert.Equal(t, 5, r.Passed)
	_, ok := proto.Load("HTTP/2.0")
	assert.True(t, ok, "HTTP/2 where the server offers it")

	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"load", "--url", s.URL, "--burst", "2"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitError, code)
	assert.Contains(t, out.String(), "error: 2 x tls: failed to verify certificate: x509: certificate signed by unknown authority")
}
