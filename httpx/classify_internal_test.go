package httpx

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]policy.Kind{
		101: policy.Success, 200: policy.Success, 204: policy.Success, 206: policy.Success, 304: policy.Success, 399: policy.Success,
		400: policy.Permanent, 404: policy.Permanent, 408: policy.Timeout, 409: policy.Permanent, 425: policy.Permanent,
		429: policy.Throttled, 499: policy.Permanent,
		500: policy.Failure, 501: policy.Permanent, 502: policy.Failure, 503: policy.Busy, 504: policy.Failure,
		505: policy.Permanent, 507: policy.Failure, 599: policy.Failure,
		0: policy.Failure, 99: policy.Failure, 600: policy.Failure, 999: policy.Failure,
	} {
		assert.Equal(t, want, kindOf(status), "status %d", status)
	}
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestCaseB50RetryAfter(t *testing.T) {
	t.Parallel()
	const most = 300 * time.Second
	in30 := now.Add(30 * time.Second)
	for value, want := range map[string]time.Duration{
		"120":   120 * time.Second,
		" 120 ": 120 * time.Second,
		"0":     0, // nothing, so the backoff
		"1":     time.Second,
		"007":   7 * time.Second,
		"300":   most,
		"301":   most,
		"3600":  most,

		"-5": 0, "+5": 0, "1.5": 0, "1,5": 0, "abc": 0, "": 0, " ": 0, "12s": 0, "0x10": 0, "1_000": 0, "1e3": 0, "٣": 0,

		"9223372036":             most,
		"9223372037":             most,
		"9223372036854775807":    most,
		"9223372036854775808":    most,
		"18446744073709551615":   most,
		strings.Repeat("9", 30):  most,
		strings.Repeat("9", 999): most,

		in30.Format(http.TimeFormat):                                        30 * time.Second,
		in30.Format("Monday, 02-Jan-06 15:04:05 GMT"):                       30 * time.Second, // RFC 850
		in30.Format(time.ANSIC):                                             30 * time.Second, // asctime
		now.Add(-time.Second).Format(http.TimeFormat):                       0,
		now.Format(http.TimeFormat):                                         0,
		now.Add(time.Hour).Format(http.TimeFormat):                          most,
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Format(time.ANSIC): most,
		"Mon, 01 Jan 0001 00:00:00 GMT":                                     0,
	} {
		assert.Equal(t, want, retryAfter(value, now, most), "Retry-After: %q", value)
	}
}

func TestRetryAfterProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "most"))
		n := rapid.Uint64().Draw(t, "seconds")
		got := retryAfter(strconv.FormatUint(n, 10), now, most)
		want := most
		if n <= math.MaxInt64/uint64(time.Second) {
			want = min(time.Duration(n)*time.Second, most)
		}
		if got != want {
			t.Fatalf("Retry-After %d capped at %v: got %v, want %v", n, most, got, want)
		}
		d := time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "date")) * time.Second
		got = retryAfter(now.Add(d).Format(http.TimeFormat), now, most)
		if want := min(max(d, 0), most); got != want {
			t.Fatalf("Retry-After in %v capped at %v: got %v, want %v", d, most, got, want)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "-5", "1.5", "", strings.Repeat("9", 30), now.Format(http.TimeFormat), now.Format(time.ANSIC), "Sunday, 06-Nov-94 08:49:37 GMT"} {
		f.Add(s, int64(300*time.Second))
	}
	f.Fuzz(func(t *testing.T, value string, most int64) {
		if most <= 0 {
			return // the header is not read
		}
		if got := retryAfter(value, now, time.Duration(most)); got < 0 || got > time.Duration(most) {
			t.Errorf("Retry-After %q capped at %d: got %d", value, most, got)
		}
	})
}
