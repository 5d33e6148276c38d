package redislimit

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// poolSize is the number of connections, to each server, of a client that NewClient makes: a
// script takes some 50 µs, so 8 of them keep a server busy.
const poolSize = 8

// NewClient returns a client that gives up in time. By its defaults go-redis tries a server
// that is away again and again, which takes seconds; it ignores the deadline of a call; and
// it opens ten connections for each processor. Here it tries once, keeps to the deadline, and
// opens 8 connections to each server.
//
// What would make a call outlast its deadline is overwritten in opts: MaxRetries,
// DialerRetries and ContextTimeoutEnabled. Of the rest what is set stays; a DialTimeout is 1 s
// by default, as a connection goes on being made for the next call when this one has no time
// left. To close the client is up to the caller. Give limits a client of their own: if they share one with what is slow, they
// wait behind it for a connection.
func NewClient(opts *redis.UniversalOptions) redis.UniversalClient {
	o := *opts
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	if o.DialTimeout == 0 {
		o.DialTimeout = time.Second
	}
	if o.MinRetryBackoff == 0 && o.MaxRetryBackoff == 0 {
		o.MinRetryBackoff, o.MaxRetryBackoff = -1, -1
	}
	if o.PoolSize == 0 {
		o.PoolSize = poolSize
	}
	if o.PipelinePoolSize == 0 {
		o.PipelinePoolSize = -1 // pipelines share them
	}
	if o.MaxRedirects == 0 {
		o.MaxRedirects = 2
	}
	return redis.NewUniversalClient(&o)
}

// clientFaults returns what of a client makes a call outlast its deadline.
func clientFaults(c redis.UniversalClient) (errs []error) {
	var retries, dials int
	var keeps bool
	switch c := c.(type) {
	case *redis.Client:
		o := c.Options()
		retries, dials, keeps = o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled
	case *redis.ClusterClient:
		o := c.Options()
		retries, dials, keeps = 0, o.DialerRetries, o.ContextTimeoutEnabled
	default:
		return nil // another kind, or a wrapper: its own affair
	}
	if !keeps {
		errs = append(errs, fault("Client", nil, "want ContextTimeoutEnabled in its options, or Timeout cannot be kept: use NewClient"))
	}
	if retries > 0 {
		errs = append(errs, fault("Client", nil, "want MaxRetries -1 in its options, as a second try spends tokens twice: use NewClient"))
	}
	if dials > 1 {
		errs = append(errs, fault("Client", nil, "want DialerRetries 1 in its options, as each try of a server that is away takes time: use NewClient"))
	}
	return errs
}
