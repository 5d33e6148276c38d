package redisx

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
)

// Guard sends the commands of a client through p from now on: it adds a [Hook] to the client,
// and shows its connections in the snapshots of p. It is called once for a client, before
// that is used.
//
// The error joins, as [*policy.ConfigError], what of the client's options would work against
// the pipeline: ContextTimeoutEnabled must be set, or no timeout is kept; MaxRetries must be -1
// and DialerRetries 1, or retries multiply, unless Config.ClientRetries leaves them to go-redis.
// Of the options of a [redis.Ring], of a wrapper, and of what else has no Options of go-redis
// it knows nothing.
//
// A [redis.ClusterClient] is guarded as a whole: its hook sees commands before they are sent
// to a node, and again no redirect. For a pipeline per node give each node a [Hook] of its own
// (redis.ClusterClient.OnNewNode) in its place. Both together would take two permits.
func Guard(c redis.UniversalClient, p *policy.Pipeline, cfg Config) (*Hook, error) {
	h := New(p, cfg)
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Dependency: p.Name(), Policy: "redisx", Field: field, Value: value, Want: want})
	}
	check := func(keeps bool, retries, dials int) {
		if !keeps {
			fault("Client.ContextTimeoutEnabled", false, "want true, or commands go on after their deadline")
		}
		if retries > 0 && !cfg.ClientRetries {
			fault("Client.MaxRetries", retries, "want -1, or set Config.ClientRetries to leave retries to go-redis: those of both multiply")
		}
		if dials > 1 && !cfg.ClientRetries {
			fault("Client.DialerRetries", dials, "want 1, or set Config.ClientRetries: a server that is away takes seconds otherwise")
		}
	}
	switch c := c.(type) {
	case nil:
		fault("Client", nil, "want a client")
	case *redis.Client:
		o := c.Options()
		check(o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries)
		h.conns.size, h.conns.stats = o.PoolSize, c.PoolStats
		if h.conns.pipes = o.PipelinePoolSize; h.conns.pipes == 0 {
			h.conns.pipes = redis.DefaultPipelinePoolSize
		}
		h.conns.pipes = max(h.conns.pipes, 0)
	case *redis.ClusterClient:
		o := c.Options()
		check(o.ContextTimeoutEnabled, 0, o.DialerRetries) // the redirects are its retries
		h.conns.stats = c.PoolStats
	case *redis.Ring:
		h.conns.stats = c.PoolStats
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if p != nil {
		at, err := p.Attach(h.conns)
		if err != nil {
			return nil, err
		}
		h.attached = at
	}
	c.AddHook(h)
	return h, nil
}
