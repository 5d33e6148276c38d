package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	vegeta "github.com/tsenart/vegeta/v12/lib"
	"pgregory.net/rapid"
)

func TestScheduleDue(t *testing.T) {
	t.Parallel()
	s, err := NewSchedule(Stage{Burst: 3}, Stage{For: 2 * time.Second}, Stage{From: 2.5, To: 2.5, For: 2 * time.Second}, Stage{From: 0, To: 4, For: 2 * time.Second})
	require.NoError(t, err)
	want := []float64{0, 0, 0, 2000, 2400, 2800, 3200, 3600, 4000, 5000, 5414, 5732}
	require.Equal(t, len(want), s.Requests())
	for k, at := range want {
		assert.InDelta(t, at, float64(s.due(k).Microseconds())/1000, 1, "request %d", k)
	}
	assert.InDelta(t, 2, s.rate(5*time.Second), 1e-9)
	assert.Zero(t, s.rate(time.Second))
}

func TestScheduleIsThatOfTheRates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.1, 500))
		stage := rapid.Custom(func(t *rapid.T) Stage {
			if rapid.Bool().Draw(t, "burst") {
				return Stage{Burst: rapid.IntRange(1, 50).Draw(t, "n")}
			}
			return Stage{From: rate.Draw(t, "from"), To: rate.Draw(t, "to"), For: time.Duration(rapid.Int64Range(1, int64(5*time.Second)).Draw(t, "for"))}
		})
		stages := rapid.SliceOfN(stage, 1, 5).Draw(t, "stages")
		s, err := NewSchedule(append(stages, Stage{Burst: 1})...)
		require.NoError(t, err)
		last := time.Duration(0)
		for k := range s.Requests() {
			due := s.due(k)
			require.GreaterOrEqual(t, due, last, "request %d", k)
			require.LessOrEqual(t, due, s.Length())
			last = due
		}
		at := time.Duration(rapid.Int64Range(0, int64(s.Length())).Draw(t, "at"))
		n := s.dueBefore(at)
		require.True(t, n == s.Requests() || s.due(n) >= at)
		require.True(t, n == 0 || s.due(n-1) < at)
		// The number of requests until a time is the area below the rates.
		area, from := 0.0, time.Duration(0)
		for _, st := range s.stages {
			switch passed := at - from; {
			case st.Burst > 0 && passed > 0:
				area += float64(st.Burst)
			case st.Burst == 0 && passed > 0:
				x := min(passed, st.For).Seconds()
				area += st.From*x + (st.To-st.From)/st.For.Seconds()*x*x/2
			}
			from += st.For
		}
		require.InDelta(t, area, n, float64(len(stages)+1), "each stage may begin one more")
	})
}

type resolver map[string][]string

func (r resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var list []netip.Addr
	for _, text := range r[host] {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

func TestTargetIsOwnedOrOnLoopback(t *testing.T) {
	t.Parallel()
	names := resolver{
		"localhost": {"::1", "127.0.0.1"}, "mapped": {"::ffff:127.0.0.1"},
		"mixed": {"127.0.0.1", "192.0.2.7"}, "away": {"192.0.2.7"}, "nobody": nil,
	}
	for address, pins := range map[string][]string{
		"http://127.0.0.1:8080/x": {"127.0.0.1:8080"}, "http://127.9.9.9": {"127.9.9.9:80"}, "https://[::1]/": {"[::1]:443"},
		"http://localhost:81": {"[::1]:81", "127.0.0.1:81"}, "http://mapped/": {"127.0.0.1:80"}, "http://user:secret@localhost": {"[::1]:80", "127.0.0.1:80"},
	} {
		target, err := NewTarget(t.Context(), address, false, names)
		require.NoError(t, err, address)
		assert.Equal(t, pins, target.pins, address)
		assert.NotContains(t, target.String(), "secret")
	}
	for _, address := range []string{"http://192.0.2.7/", "http://0.0.0.0/", "http://[::]/", "http://mixed/", "http://away/", "http://[2001:db8::1]:80/", "http://169.254.169.254/"} {
		_, err := NewTarget(t.Context(), address, false, names)
		require.ErrorIs(t, err, ErrNotOwned, address)
		_, err = NewTarget(t.Context(), address, true, names)
		require.NoError(t, err, address)
	}
	for address, want := range map[string]string{
		"": "is no address", "localhost:8080": "is no address", "ftp://localhost/": "is no address", "http:///x": "is no address", "http://:80/": "is no address",
		"http://nobody/": "there are no addresses", "http://local host/": "invalid character", "http://bücher.example/": "punycode",
	} {
		_, err := NewTarget(t.Context(), address, false, names)
		assert.ErrorContains(t, err, want, address)
	}
}

func TestTargetIsTheOnlyPlace(t *testing.T) {
	t.Parallel()
	target, err := NewTarget(t.Context(), "http://localhost:8080/", false, resolver{"localhost": {"127.0.0.1"}})
	require.NoError(t, err)
	_, err = target.dial(t.Context(), "tcp", "127.0.0.1:8081")
	require.ErrorContains(t, err, "127.0.0.1:8081 is not the target")
	_, err = target.dial(t.Context(), "tcp", "192.0.2.7:8080")
	require.ErrorContains(t, err, "is not the target")
	assert.Nil(t, target.transport(Config{}).Proxy, "the environment may name one")
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var ra RetryAfter
	for _, a := range []struct {
		value  string
		status int
	}{
		{"3", 429},
		{" 1 ", 429},
		{now.Add(7 * time.Second).Format(http.TimeFormat), 503},
		{now.Add(-time.Hour).Format(http.TimeFormat), 429},
		{"", 429},
		{"", 200},
		{"soon", 429},
		{"-1", 429},
		{"1.5", 503},
	} {
		ra.add(a.value, a.status, now)
	}
	assert.Equal(t, RetryAfter{Seen: 4, On429: 3, Missing: 1, Unreadable: 3, Min: 0, Max: 7}, ra)
}

// script feeds a tally with results and returns its report.
func script(t *testing.T, s *Schedule, results func(k int) *vegeta.Result) *Report {
	t.Helper()
	target, err := NewTarget(t.Context(), "http://127.0.0.1/", false, nil)
	require.NoError(t, err)
	c := Config{Target: target, Schedule: s}.withDefaults()
	began := time.Now()
	ta := newTally(c, began)
	for k := range s.Requests() {
		r := results(k)
		r.Seq = uint64(k)
		if r.Timestamp.IsZero() {
			r.Timestamp = began.Add(s.due(k))
		}
		ta.add(r)
	}
	return ta.report(false, s.Length(), 1)
}

func TestTallyCountsByTheDueSecond(t *testing.T) {
	t.Parallel()
	s, err := NewSchedule(Stage{From: 10, To: 10, For: 3 * time.Second}, Stage{For: 2 * time.Second}, Stage{Burst: 2})
	require.NoError(t, err)
	r := script(t, s, func(k int) *vegeta.Result {
		res := &vegeta.Result{Code: []uint16{200, 429, 503, 0}[k%4], Latency: time.Duration(k+1) * time.Millisecond, BytesIn: 1, Headers: http.Header{}}
		if res.Code == 0 {
			res.Error = `Get "http://127.0.0.1/": dial tcp 127.0.0.1:80: connect: connection refused`
		}
		return res
	})
	require.Len(t, r.Timeline, 6)
	assert.Equal(t, 10, r.Timeline[0].Offered)
	assert.Equal(t, 3, r.Timeline[0].Passed)
	assert.Equal(t, 3, r.Timeline[0].Refused)
	assert.Equal(t, 2, r.Timeline[0].Other)
	assert.Equal(t, 2, r.Timeline[0].Errors)
	assert.InDelta(t, 10, r.Timeline[0].Latency.Max, 0.1)
	assert.InDelta(t, 30, r.Timeline[2].Latency.Max, 0.3)
	assert.Equal(t, Second{Second: 4}, r.Timeline[4], "a pause")
	assert.Equal(t, 2, r.Timeline[5].Offered, "a burst at the very end")
	assert.Equal(t, []ErrorKind{{"connection refused", 8}}, r.ErrorKinds)
	assert.Equal(t, map[string]int{"200": 8, "429": 8, "503": 8}, r.Statuses)
	assert.Equal(t, 8, r.RetryAfter.Missing)
	assert.InDelta(t, 5.0, r.Seconds, 1e-9)
	assert.InDelta(t, 8/5.0, r.AdmittedPerSecond, 1e-9)
}

// A generator that is late must not make the target look quick.
func TestLatencyBeginsWhenTheRequestWasDue(t *testing.T) {
	t.Parallel()
	s, err := NewSchedule(Stage{From: 100, To: 100, For: time.Second})
	require.NoError(t, err)
	began := time.Now()
	r := script(t, s, func(k int) *vegeta.Result {
		// One request at a time, each of 20 ms, though one is due every 10 ms.
		return &vegeta.Result{Code: 200, Timestamp: began.Add(time.Duration(k) * 20 * time.Millisecond), Latency: 20 * time.Millisecond, BytesIn: 1}
	})
	assert.InDelta(t, 1010, r.Latency.All.Max, 2, "the last one was due at 990 ms and answered at 2 s")
	assert.InDelta(t, 510, r.Latency.All.P50, 12)
	assert.Equal(t, 98, r.Late)
	assert.InDelta(t, 990, r.WorstLate, 1)
	// What size reads counts from the sending, as its arithmetic wants.
	require.Len(t, r.Steps, 1)
	assert.InDelta(t, 20, r.Steps[0].Latency, 0.2)
	assert.InDelta(t, 1, r.Steps[0].Concurrency, 0.01)
	assert.InDelta(t, 49, r.Steps[0].Throughput, 1)
	assert.Contains(t, strings.Join(r.remarks(), "\n"), "98 requests were sent more than 10ms after they were due")
}

func TestBinsPutSecondsTogether(t *testing.T) {
	t.Parallel()
	seconds := make([]Second, 130)
	for i := range seconds {
		seconds[i] = Second{Second: i, Offered: 2, Passed: 1, Refused: 1, Latency: Latency{Count: 2, P50: 1, Max: float64(i)}}
	}
	b := bins(seconds, 60)
	require.Len(t, b, 26)
	assert.Equal(t, "0-4", b[0].name())
	assert.Equal(t, "125-129", b[25].name())
	assert.Equal(t, 10, b[25].Offered)
	assert.InDelta(t, 129, b[25].Latency.Max, 0)
	assert.Len(t, bins(seconds[:60], 60), 60)
	assert.Empty(t, bins(nil, 60))
}

// rebinding is a name that leads elsewhere when it is looked up again.
type rebinding struct{ asked int }

func (r *rebinding) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	r.asked++
	return []netip.Addr{[]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7")}[min(r.asked-1, 1)]}, nil
}

func TestNameIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Host))
	}))
	t.Cleanup(s.Close)
	names := new(rebinding)
	target, err := NewTarget(t.Context(), "http://rebind.example:"+s.URL[strings.LastIndex(s.URL, ":")+1:], false, names)
	require.NoError(t, err)
	schedule, err := NewSchedule(Stage{Burst: 3}, Stage{For: 50 * time.Millisecond}, Stage{Burst: 3})
	require.NoError(t, err)
	r, err := Run(t.Context(), Config{Target: target, Schedule: schedule}, nil)
	require.NoError(t, err)
	assert.Equal(t, 6, r.Passed)
	assert.Equal(t, 1, names.asked)
}
