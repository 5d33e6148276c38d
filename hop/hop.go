package hop

import (
	"strconv"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Headers of HTTP, in their canonical form.
const (
	// AttemptHeader has the number of the attempt that a request is, from 1, counted
	// over all layers above. Envoy sends it with include_request_attempt_count.
	AttemptHeader = "X-Envoy-Attempt-Count"

	// TimeoutHeader has the milliseconds that the caller waits for the response from
	// when it sent the request. Envoy sends it, with the timeout of its route.
	TimeoutHeader = "X-Envoy-Expected-Rq-Timeout-Ms"

	// PriorityHeader has the priority of the call, unless it is normal: low, high or
	// critical.
	PriorityHeader = "Breakwater-Priority"

	// PushbackHeader, of a response that failed, has the milliseconds after which it
	// may be retried, or a negative number: never. It is gRPC's
	// grpc-retry-pushback-ms over HTTP.
	PushbackHeader = "Breakwater-Retry-Pushback-Ms"
)

// Keys of gRPC's metadata, as gRPC itself uses them but for the last.
const (
	// AttemptsKey has the number of attempts before this one, unless it is the first.
	AttemptsKey = "grpc-previous-rpc-attempts"

	// TimeoutKey has the time that the caller waits for the response.
	TimeoutKey = "grpc-timeout"

	// PushbackKey, in the trailer of a call that failed, has the milliseconds after
	// which it may be retried, or a negative number: never.
	PushbackKey = "grpc-retry-pushback-ms"

	// PriorityKey has what [PriorityHeader] has. It is ours.
	PriorityKey = "breakwater-priority"
)

// The bounds of what is sent and understood.
const (
	MaxAttempt  = 999
	MaxTimeout  = 99_999_999 * time.Millisecond // about 28 hours, 8 digits
	MaxPushback = MaxTimeout
)

// number parses a whole number from least to most, written in digits alone and as short
// as it can be.
func number(s string, least, most int64) (int64, bool) {
	if s == "" || len(s) > 8 || (s[0] == '0' && s != "0") {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n >= least && n <= most
}

// FormatAttempt formats the number of an attempt for [AttemptHeader].
func FormatAttempt(n int) string { return strconv.Itoa(min(max(n, 1), MaxAttempt)) }

// ParseAttempt parses the value of an [AttemptHeader], a number from 1 to [MaxAttempt].
func ParseAttempt(s string) (n int, ok bool) {
	v, ok := number(s, 1, MaxAttempt)
	if !ok {
		return 0, false
	}
	return int(v), true
}

// FormatPrevious formats the number of an attempt, from 1, for [AttemptsKey]. It is empty
// for the first, which has no such key.
func FormatPrevious(n int) string {
	if n <= 1 {
		return ""
	}
	return strconv.Itoa(min(n, MaxAttempt) - 1)
}

// ParsePrevious parses the value of an [AttemptsKey] and returns the number of the
// attempt that follows those, from 1.
func ParsePrevious(s string) (n int, ok bool) {
	v, ok := number(s, 0, MaxAttempt-1)
	if !ok {
		return 0, false
	}
	return int(v) + 1, true
}

// FormatTimeout formats a time that is left for [TimeoutHeader], in whole milliseconds,
// rounded down, but at least 1: Envoy takes 0 for no timeout.
func FormatTimeout(d time.Duration) string {
	return strconv.FormatInt(milliseconds(d), 10)
}

func milliseconds(d time.Duration) int64 {
	return min(max(int64(d/time.Millisecond), 1), int64(MaxTimeout/time.Millisecond))
}

// ParseTimeout parses the value of a [TimeoutHeader], from 1 ms to [MaxTimeout].
func ParseTimeout(s string) (d time.Duration, ok bool) {
	v, ok := number(s, 1, int64(MaxTimeout/time.Millisecond))
	if !ok {
		return 0, false
	}
	return time.Duration(v) * time.Millisecond, true
}

// grpcUnits are the units of gRPC's timeouts, the smallest first.
var grpcUnits = [...]struct {
	name byte
	size time.Duration
}{
	{'n', time.Nanosecond},
	{'u', time.Microsecond},
	{'m', time.Millisecond},
	{'S', time.Second},
	{'M', time.Minute},
	{'H', time.Hour},
}

// mostDigits is the largest value of a timeout in gRPC, of 8 digits.
const mostDigits = 99_999_999

// FormatGRPCTimeout formats a time that is left for [TimeoutKey], in the smallest unit in
// which it has no more than 8 digits, rounded down, but at least 1 ns.
func FormatGRPCTimeout(d time.Duration) string {
	d = max(d, 1)
	for _, u := range grpcUnits {
		if v := int64(d / u.size); v <= mostDigits {
			return strconv.FormatInt(v, 10) + string(u.name)
		}
	}
	return strconv.Itoa(mostDigits) + "H" // not reached: the longest Duration has 2,562,047 hours
}

// ParseGRPCTimeout parses the value of a [TimeoutKey]. Longer times than [MaxTimeout]
// count as that.
func ParseGRPCTimeout(s string) (d time.Duration, ok bool) {
	if s == "" {
		return 0, false
	}
	digits, unit := s[:len(s)-1], s[len(s)-1]
	for _, u := range grpcUnits {
		if u.name != unit {
			continue
		}
		v, ok := number(digits, 1, mostDigits)
		if !ok {
			return 0, false
		}
		if v > int64(MaxTimeout/u.size) {
			return MaxTimeout, true
		}
		return time.Duration(v) * u.size, true
	}
	return 0, false
}

// FormatPushback formats a pushback for [PushbackHeader] and [PushbackKey], in whole
// milliseconds, rounded up; negative is never.
func FormatPushback(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return strconv.FormatInt(min(ms, int64(MaxPushback/time.Millisecond)), 10)
}

// ParsePushback parses the value of a [PushbackHeader] or [PushbackKey], as the outcome
// of an attempt has it: 0 says nothing, and negative is never. As in gRPC, what is there
// and cannot be read is never.
func ParsePushback(s string) time.Duration {
	if s == "" {
		return 0
	}
	v, ok := number(s, 0, int64(MaxPushback/time.Millisecond))
	if !ok {
		return -1
	}
	return time.Duration(v) * time.Millisecond
}

// FormatPriority formats a priority for [PriorityHeader]. It is empty for the normal one,
// which has no such header, and for what is no priority.
func FormatPriority(p policy.Priority) string {
	switch p {
	case policy.PriorityLow:
		return "low"
	case policy.PriorityHigh:
		return "high"
	case policy.PriorityCritical:
		return "critical"
	default:
		return ""
	}
}

// ParsePriority parses the value of a [PriorityHeader].
func ParsePriority(s string) (p policy.Priority, ok bool) {
	switch s {
	case "low":
		return policy.PriorityLow, true
	case "normal":
		return policy.PriorityNormal, true
	case "high":
		return policy.PriorityHigh, true
	case "critical":
		return policy.PriorityCritical, true
	default:
		return 0, false
	}
}
