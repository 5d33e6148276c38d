package asynqdefer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// ErrDead reports a task that is among the dead letters already: handing it over again does
// not bring it back.
var ErrDead = errors.New("asynqdefer: the task is among the dead letters")

const (
	kind         = "asynqdefer"
	defaultQueue = "breakwater"
)

// QueueConfig configures a [Queue].
type QueueConfig struct {
	// Redis is the client to use; the queue does not close it. Its defaults wait for
	// seconds when Redis is away: set MaxRetries to -1, DialerRetries to 1, and
	// ContextTimeoutEnabled. It must not be nil.
	Redis redis.UniversalClient

	// Queue is the name of the queue, the same for its workers. Empty means
	// "breakwater".
	Queue string

	// Retention is for how long a task is remembered after it was done, so that another
	// one of its kind and key is known to be the same. Each costs its memory in Redis.
	// Zero means not at all: a task is known for as long as it is queued.
	Retention time.Duration
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c QueueConfig) Validate() error {
	var errs []error
	if c.Redis == nil {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Redis", Want: "want a client, not nil"})
	}
	if c.Retention < 0 {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Retention", Value: c.Retention, Want: "at least 0 (0 is not at all)"})
	}
	return errors.Join(errs...)
}

// Queue puts tasks into Redis. It implements [fallback.Queue] and is safe for concurrent use.
type Queue struct {
	cfg       QueueConfig
	client    *asynq.Client
	inspector *asynq.Inspector

	accepted, duplicates, refused, unconfirmed atomic.Uint64
	inFlight                                   atomic.Int64
	broken                                     atomic.Bool // the last hand-over found no Redis
}

var _ fallback.Queue = (*Queue)(nil)

// NewQueue returns a queue. It does not talk to Redis yet.
func NewQueue(cfg QueueConfig) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Queue == "" {
		cfg.Queue = defaultQueue
	}
	return &Queue{cfg: cfg, client: asynq.NewClientFromRedisClient(cfg.Redis), inspector: asynq.NewInspectorFromRedisClient(cfg.Redis)}, nil
}

// taskID is what asynq knows a task by.
func taskID(t fallback.Task) string { return t.Kind + ":" + t.Key }

// Enqueue puts t into the queue, and returns nil when Redis has it, also when it had it
// already. The error is [ErrDead] for a task that is among the dead letters, that of
// [fallback.Task.Validate], or that of Redis: the task may be there or not then.
func (q *Queue) Enqueue(ctx context.Context, t fallback.Task) error {
	if err := t.Validate(); err != nil {
		return err
	}
	q.inFlight.Add(1)
	defer q.inFlight.Add(-1)
	opts := []asynq.Option{
		asynq.Queue(q.cfg.Queue), asynq.TaskID(taskID(t)),
		asynq.MaxRetry(math.MaxInt32), // the worker counts
		// The worker bounds the handler; this is for asynq's own bookkeeping.
		asynq.Timeout(24 * time.Hour),
	}
	if q.cfg.Retention > 0 {
		opts = append(opts, asynq.Retention(q.cfg.Retention))
	}
	_, err := q.client.EnqueueContext(ctx, asynq.NewTaskWithHeaders(t.Kind, t.Payload, t.Header, opts...))
	switch {
	case err == nil:
		q.accepted.Add(1)
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return q.known(t)
	default:
		q.unconfirmed.Add(1)
		q.broken.Store(true)
		return fmt.Errorf("asynqdefer: %w", err)
	}
	q.broken.Store(false)
	return nil
}

// known is called for a task that is there already.
func (q *Queue) known(t fallback.Task) error {
	q.broken.Store(false)
	// asynq's inspector takes no context; the client's own timeouts bound it.
	if info, err := q.inspector.GetTaskInfo(q.cfg.Queue, taskID(t)); err == nil && info.State == asynq.TaskStateArchived {
		q.refused.Add(1)
		return ErrDead
	}
	q.accepted.Add(1)
	q.duplicates.Add(1)
	return nil
}

// DeferSnapshot returns the counters of the queue, for the snapshot of a pipeline.
func (q *Queue) DeferSnapshot() policy.DeferSnapshot {
	return policy.DeferSnapshot{
		Accepted: q.accepted.Load(), Duplicates: q.duplicates.Load(), Refused: q.refused.Load(),
		Unconfirmed: q.unconfirmed.Load(), InFlight: int(q.inFlight.Load()), Connected: !q.broken.Load(),
	}
}

// Depth asks Redis how many tasks the queue holds. The context ends the wait for the answer.
func (q *Queue) Depth(ctx context.Context) (fallback.Depth, error) {
	type answer struct {
		info *asynq.QueueInfo
		err  error
	}
	got := make(chan answer, 1)
	go func() { // asynq's inspector takes no context; the client's own timeouts end it
		info, err := q.inspector.GetQueueInfo(q.cfg.Queue)
		got <- answer{info, err}
	}()
	select {
	case a := <-got:
		if errors.Is(a.err, asynq.ErrQueueNotFound) {
			return fallback.Depth{}, nil
		}
		if a.err != nil {
			return fallback.Depth{}, fmt.Errorf("asynqdefer: %w", a.err)
		}
		return fallback.Depth{Ready: a.info.Pending, Running: a.info.Active, Waiting: a.info.Retry + a.info.Scheduled, Dead: a.info.Archived}, nil
	case <-ctx.Done():
		return fallback.Depth{}, ctx.Err()
	}
}
