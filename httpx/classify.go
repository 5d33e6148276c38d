package httpx

import (
	"net/http"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kindOf judges a response by its status code.
func kindOf(status int) policy.Kind {
	switch status {
	case http.StatusRequestTimeout:
		return policy.Timeout // the server gave up waiting for the request
	case http.StatusTooManyRequests:
		return policy.Throttled
	case http.StatusServiceUnavailable:
		return policy.Busy
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return policy.Permanent // about the request, whatever the server's state
	}
	switch {
	case status >= 100 && status < 400:
		return policy.Success
	case status >= 400 && status < 500:
		return policy.Permanent
	default:
		// RFC 9110 §15 asks to treat codes outside of 100 to 599 as 5xx.
		return policy.Failure
	}
}

// mayChange reports whether another attempt may have another outcome: the kinds whose
// Retry-After means something.
func mayChange(k policy.Kind) bool { return k.IsFailure() || k == policy.Throttled }

// retryAfter reads a Retry-After header (RFC 9110 §10.2.3), a number of seconds or a
// date in one of HTTP's three forms, and caps it at most. It returns 0, which means
// that the server said nothing, for anything else and for a time that is not in the
// future. A date is measured against the own clock.
func retryAfter(value string, now time.Time, most time.Duration) time.Duration {
	value = strings.Trim(value, " \t")
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		return seconds(value, most)
	}
	t, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(t.Sub(now), 0), most)
}

// seconds converts decimal digits, any number of them, and caps the result at most.
func seconds(digits string, most time.Duration) time.Duration {
	limit := int64(most / time.Second)
	var n int64
	for _, c := range digits {
		// Capped before each step, so n never exceeds 10 times the longest
		// Duration in seconds, about 9.2e10.
		if n = n*10 + int64(c-'0'); n > limit {
			return most
		}
	}
	return time.Duration(n) * time.Second
}
