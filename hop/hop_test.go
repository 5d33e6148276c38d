package hop_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
)

// nonsense is what no number is.
var nonsense = []string{
	"", " ", "x", "-", "-0", "+1", " 1", "1 ", "01", "00", "1.0", "1e3", "0x1", "1,1", "1, 1", "١", "1\n", "1\x00",
	"999999999", "18446744073709551617", strings.Repeat("9", 1000),
}

func TestNonsenseIsAbsent(t *testing.T) {
	t.Parallel()
	for _, s := range nonsense {
		_, ok := hop.ParseAttempt(s)
		assert.False(t, ok, "attempt %q", s)
		_, ok = hop.ParsePrevious(s)
		assert.False(t, ok, "previous %q", s)
		_, ok = hop.ParseTimeout(s)
		assert.False(t, ok, "timeout %q", s)
		for _, unit := range []string{"", "n", "u", "m", "S", "M", "H", "s", "ms"} {
			_, ok = hop.ParseGRPCTimeout(s + unit)
			assert.False(t, ok, "gRPC timeout %q", s+unit)
		}
		_, ok = hop.ParsePriority(s)
		assert.False(t, ok, "priority %q", s)
		if s != "" {
			assert.Negative(t, hop.ParsePushback(s), "pushback %q", s)
		}
	}
	assert.Zero(t, hop.ParsePushback(""), "nothing says nothing")
	for _, s := range []string{"-1", "-2", "-99999999999999999999", "never"} {
		assert.Negative(t, hop.ParsePushback(s), s)
	}
	for _, s := range []string{"Low", "HIGH", "1", "urgent"} {
		_, ok := hop.ParsePriority(s)
		assert.False(t, ok, "priority %q", s)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for in, want := range map[int]string{math.MinInt: "1", 0: "1", 1: "1", 2: "2", 999: "999", 1000: "999", math.MaxInt: "999"} {
		assert.Equal(t, want, hop.FormatAttempt(in), in)
	}
	for in, want := range map[int]string{math.MinInt: "", 0: "", 1: "", 2: "1", 999: "998", math.MaxInt: "998"} {
		assert.Equal(t, want, hop.FormatPrevious(in), in)
	}
	for in, want := range map[time.Duration]string{
		math.MinInt64: "1", 0: "1", 1: "1", time.Millisecond: "1", 1999 * time.Microsecond: "1", time.Second: "1000",
		hop.MaxTimeout: "99999999", math.MaxInt64: "99999999",
	} {
		assert.Equal(t, want, hop.FormatTimeout(in), in)
	}
	for in, want := range map[time.Duration]string{
		-1: "1n", 0: "1n", 1: "1n", 99_999_999: "99999999n", 100_000_000: "100000u", time.Second: "1000000u", 99 * time.Second: "99000000u",
		100 * time.Second: "100000m", 27 * time.Hour: "97200000m", 100 * time.Hour: "360000S", math.MaxInt64: "2562047H",
	} {
		assert.Equal(t, want, hop.FormatGRPCTimeout(in), in)
	}
	for in, want := range map[time.Duration]string{
		math.MinInt64: "-1", -1: "-1", 0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2", math.MaxInt64: "99999999",
	} {
		assert.Equal(t, want, hop.FormatPushback(in), in)
	}
	for _, h := range []string{hop.AttemptHeader, hop.TimeoutHeader, hop.PriorityHeader, hop.PushbackHeader} {
		assert.Equal(t, http.CanonicalHeaderKey(h), h)
	}
	for _, k := range []string{hop.AttemptsKey, hop.TimeoutKey, hop.PushbackKey} {
		assert.Equal(t, strings.ToLower(k), k, "keys of metadata are in lower case")
	}
}

// What is sent is read as what it was, to the precision of its format.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, hop.MaxAttempt).Draw(t, "attempt")
		got, ok := hop.ParseAttempt(hop.FormatAttempt(n))
		require.True(t, ok)
		require.Equal(t, n, got)
		if s := hop.FormatPrevious(n); s != "" {
			got, ok = hop.ParsePrevious(s)
			require.True(t, ok)
			require.Equal(t, n, got)
		} else {
			require.Equal(t, 1, n)
		}

		d := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(hop.MaxTimeout)).Draw(t, "time"))
		back, ok := hop.ParseTimeout(hop.FormatTimeout(d))
		require.True(t, ok)
		require.Equal(t, d.Truncate(time.Millisecond), back)
		back, ok = hop.ParseGRPCTimeout(hop.FormatGRPCTimeout(d))
		require.True(t, ok)
		require.LessOrEqual(t, back, d, "a deadline is never later than it was")
		require.Less(t, float64(d-back), float64(d)*1e-4)
		back = hop.ParsePushback(hop.FormatPushback(d))
		require.GreaterOrEqual(t, back, d, "a pushback is never shorter than it was")
		require.Less(t, back-d, time.Millisecond)

		p := rapid.SampledFrom([]policy.Priority{policy.PriorityLow, policy.PriorityHigh, policy.PriorityCritical}).Draw(t, "priority")
		read, ok := hop.ParsePriority(hop.FormatPriority(p))
		require.True(t, ok)
		require.Equal(t, p, read)
	})
	assert.Empty(t, hop.FormatPriority(policy.PriorityNormal))
	assert.Empty(t, hop.FormatPriority(100))
	p, ok := hop.ParsePriority("normal")
	assert.True(t, ok)
	assert.Equal(t, policy.PriorityNormal, p)
}

func TestGRPCTimeoutIsBounded(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"1n": 1, "250m": 250 * time.Millisecond, "99999999n": 99_999_999, "3S": 3 * time.Second, "2M": 2 * time.Minute, "1H": time.Hour,
		"99999999H": hop.MaxTimeout, "99999999M": hop.MaxTimeout, "100000000m": 0, "28H": hop.MaxTimeout,
	} {
		got, ok := hop.ParseGRPCTimeout(s)
		assert.Equal(t, want > 0, ok, s)
		assert.Equal(t, want, got, s)
	}
}

// Whatever comes is within bounds or absent, and what is read is written in one way only.
func FuzzParse(f *testing.F) {
	for _, s := range append(nonsense, "1", "2", "999", "1000", "99999999", "-1", "1n", "15S", "low", "critical") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := hop.ParseAttempt(s); ok {
			require.Equal(t, s, hop.FormatAttempt(n))
		}
		if n, ok := hop.ParsePrevious(s); ok {
			require.LessOrEqual(t, n, hop.MaxAttempt)
			require.GreaterOrEqual(t, n, 1)
		}
		if d, ok := hop.ParseTimeout(s); ok {
			require.Equal(t, s, hop.FormatTimeout(d))
		}
		if d, ok := hop.ParseGRPCTimeout(s); ok {
			require.Positive(t, d)
			require.LessOrEqual(t, d, hop.MaxTimeout)
			require.LessOrEqual(t, len(s), 9)
		}
		require.LessOrEqual(t, hop.ParsePushback(s), hop.MaxPushback)
		if p, ok := hop.ParsePriority(s); ok && p != policy.PriorityNormal {
			require.Equal(t, s, hop.FormatPriority(p))
		}
	})
}

func ExampleParseAttempt() {
	n, ok := hop.ParseAttempt("2")
	fmt.Println(policy.NewHop(n).IsRetry(), ok)
	// Output: true true
}
