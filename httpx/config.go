package httpx

import (
	"errors"
	"net/http"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	defaultMaxRetryAfter = 300 * time.Second

	// defaultDrainLimit covers any error page; beyond it, reading costs more than
	// the connection is worth.
	defaultDrainLimit = 64 << 10

	// defaultDrainTimeout is about what a new connection with TLS costs between
	// regions, which is what draining is to save.
	defaultDrainTimeout = 100 * time.Millisecond
)

// Config configures a [RoundTripper]. The zero value is valid: every field documents
// what zero means. [Config.Transport] copies it; later changes have no effect.
//
// The functions run on the goroutine of the request, except OnAbandoned, and may run
// concurrently.
type Config struct {
	// Choose picks the pipeline of each request, such as one for each host ([Hosts]) or
	// route ([Routes]). What it leaves open goes through the pipeline that the transport
	// was made with, if there is one. Nil means that all do.
	Choose Chooser

	// Idempotent says whether a request may reach the server more than once. It
	// decides in place of [IsIdempotent], which it may ask; it is not asked about a
	// request whose body cannot be sent again, nor about a call that says so itself
	// (policy.Call.Idempotent). Nil means IsIdempotent.
	Idempotent func(req *http.Request) bool

	// Classify judges the end of an attempt: resp is nil where err is not.
	// [policy.NotRun] leaves it to the default, which the package comment describes.
	// It is not asked when the caller has given up. It must not modify its
	// arguments, nor read or close the body. Nil judges nothing.
	Classify func(req *http.Request, resp *http.Response, err error) policy.Kind

	// Internal says that the server is one of ours: requests tell it which attempt
	// they are, how long they will be waited for and what priority they have, and a
	// response of it may say that it is not to be retried (package hop). Otherwise
	// requests carry none of these marks, and responses are not asked.
	Internal bool

	// MaxRetryAfter caps the time that a server asks to be left alone for: a larger
	// Retry-After counts as this. Zero means 300s, negative that the header is not
	// read.
	MaxRetryAfter time.Duration

	// DrainLimit is the number of bytes that are read from the body of a response
	// which is not returned, so that its connection can be used again. A body known
	// to be longer is not read at all. Zero means 65,536; negative reads nothing,
	// which costs a new connection for every retry over HTTP/1.1.
	DrainLimit int64

	// DrainTimeout bounds the time that reading these bytes takes; then the body is
	// closed as it is. It comes on top of the retry's own delay. Zero means 100ms.
	DrainTimeout time.Duration

	// BodyTimeout bounds the time from the header of a response to the end of its body,
	// also that in which the caller does not read. When it is over the body is closed,
	// what it holds given back, and reads fail with a [*BodyTimeoutError]. If one waits
	// for the server at that moment, the attempt counts as a timeout; nothing is
	// retried. Zero means no bound. It is not for streams that have no end, and does not
	// bound a connection that switched protocols.
	BodyTimeout time.Duration

	// BodyIdleTimeout bounds the time that a read of the body waits for the next byte,
	// in the same way. The time between reads does not count. For server-sent events
	// set it above the interval of their comments. Zero means no bound.
	BodyIdleTimeout time.Duration

	// OnAbandoned is told of each response body that was lost without being closed
	// or read to its end, after its permit has been given back. That is a fault of
	// the program, found late, so log it. It runs on a goroutine of the runtime and
	// must return quickly; a panic in it is dropped. Nil tells nobody; the
	// pipeline's snapshot counts them in any case.
	OnAbandoned func(b AbandonedBody)
}

// AbandonedBody describes a response body that nobody closed.
type AbandonedBody struct {
	Dependency string // name of the pipeline
	Method     string // of the request
	Host       string // of the request's URL
	Status     int    // status code of the response
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	if c.DrainTimeout < 0 {
		errs = append(errs, &policy.ConfigError{
			Policy: "httpx", Field: "DrainTimeout", Value: c.DrainTimeout,
			Want: "want a positive duration, or 0 (100ms); a negative DrainLimit turns draining off",
		})
	}
	bound := func(field string, d time.Duration) {
		if d != 0 && d < time.Microsecond {
			errs = append(errs, &policy.ConfigError{
				Policy: "httpx", Field: field, Value: d,
				Want: "want at least 1µs, or 0 (no bound); a number alone is nanoseconds",
			})
		}
	}
	bound(bodyTimeout, c.BodyTimeout)
	bound(bodyIdleTimeout, c.BodyIdleTimeout)
	return errors.Join(errs...)
}

// Transport makes a [RoundTripper] that sends each request through p, or what Choose
// returns, and, if that lets it, to next. A nil p lets everything through and changes nothing; a nil next is
// [http.DefaultTransport]. The error is that of [Config.Validate].
func (c Config) Transport(p *policy.Pipeline, next http.RoundTripper) (*RoundTripper, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return newRoundTripper(c, p, next), nil
}

// withDefaults returns what a valid c means, with every number filled in.
func (c Config) withDefaults() Config {
	if c.Idempotent == nil {
		c.Idempotent = IsIdempotent
	}
	if c.MaxRetryAfter == 0 {
		c.MaxRetryAfter = defaultMaxRetryAfter
	}
	if c.DrainLimit == 0 {
		c.DrainLimit = defaultDrainLimit
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrainTimeout
	}
	return c
}
