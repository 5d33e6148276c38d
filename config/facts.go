package config

import (
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// Facts are what is known of a dependency beside its policies, from the section facts of
// the file. They change nothing: [Lint] reckons with them. All are optional.
type Facts struct {
	// Rate is the rate of calls in the busiest hour, from this process.
	Rate ratelimit.Rate

	// Latency is the mean time of a call that is answered, P99 the time that one in a
	// hundred exceeds.
	Latency, P99 time.Duration

	// Quota is what the dependency allows this process: its share, where several
	// processes have a quota together.
	Quota ratelimit.Rate

	// Connections is the size of the connection pool between this process and the
	// dependency.
	Connections int

	// NotIdempotent says that calls must not reach the dependency twice, and that
	// they do not tell so themselves.
	NotIdempotent bool

	// CallerTimeout is how long those wait for whom the calls are made.
	CallerTimeout time.Duration

	// FallsBackTo is the dependency that the fallback asks.
	FallsBackTo string
}

// perSecond returns a rate as a number, 0 for none.
func perSecond(r ratelimit.Rate) float64 {
	if r.Per <= 0 {
		return 0
	}
	return r.Tokens / r.Per.Seconds()
}
