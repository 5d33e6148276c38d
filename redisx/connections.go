package redisx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
)

// connections is the client's pool, as the pipeline shows it.
type connections struct {
	name     string
	size     int                     // of the pool; 0 where it is not known
	pipes    int                     // of the pool for pipelines that go-redis has beside it
	stats    func() *redis.PoolStats // nil without Guard
	rejected [policy.NumReasons]atomic.Uint64
}

// Snapshot implements [policy.Snapshotter].
func (c *connections) Snapshot(time.Time) policy.PolicySnapshot {
	s := policy.PolicySnapshot{Name: c.name, Kind: defaultName, Waits: true}
	for r := range s.Rejected {
		s.Rejected[r] = c.rejected[r].Load()
	}
	if c.stats == nil {
		return s
	}
	b := &policy.BulkheadSnapshot{Limit: c.size + c.pipes}
	add := func(total, idle, pending uint32) {
		b.InFlight += int(total - min(idle, total))
		b.Waiting += int(pending)
		if c.size == 0 {
			b.Limit += int(total)
		}
	}
	all := c.stats()
	add(all.TotalConns, all.IdleConns, all.PendingRequests)
	if p := all.PipelineStats; p != nil {
		add(p.TotalConns, p.IdleConns, p.PendingRequests)
	}
	s.Bulkhead = b
	return s
}

// full reports whether every connection is in use.
func (c *connections) full() bool {
	if c.stats == nil || c.size == 0 {
		return false
	}
	all := c.stats()
	return all.IdleConns == 0 && int(all.TotalConns) >= c.size
}

// unreached makes a refusal of an error which says that a command got no connection, since
// others had all of them; of any other it makes nil. A deadline that passes is such an error when
// it is not the network's, and all connections are in use.
func (h *Hook) unreached(ctx context.Context, at *policy.Attempt, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
	case err == context.DeadlineExceeded && h.conns.full(): //nolint:errorlint // one that is wrapped is not the pool's
		err = fmt.Errorf("%w: %w", redis.ErrPoolTimeout, withContext(ctx, err))
	default:
		return nil
	}
	re := &policy.RejectedError{Dependency: h.p.Name(), Policy: h.cfg.Name, Reason: policy.ReasonWait, Err: err}
	h.conns.rejected[policy.ReasonWait].Add(1)
	if h.attached != nil {
		h.attached.Reject(re, at)
	}
	return re
}
