package ratelimit

import "time"

// Outside is embedded by a limiter of another package to make it a [Limiter]: a promise
// to keep what that promises, and to follow as it grows. Such a limiter cannot be one of
// several in an [All]: those decide in memory, as one.
type Outside struct{}

func (Outside) title() string { return "" }

// Granted returns the [Reservation] of a limiter that reserves nothing ahead of time: it
// is OK if the tokens were taken, and otherwise says when they would have been there.
func Granted(ok bool, retryAfter time.Duration) Reservation {
	if ok {
		return Reservation{ok: true}
	}
	return Reservation{delay: retryAfter}
}
