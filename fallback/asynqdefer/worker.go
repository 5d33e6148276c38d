package asynqdefer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/internal/deferral"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	defaultConcurrency = 10
	defaultMaxAttempts = 10
	defaultTimeout     = time.Minute
	defaultMinDelay    = time.Second
	defaultMaxDelay    = 10 * time.Minute
	defaultShutdown    = 10 * time.Second
)

// WorkerConfig configures a [Worker].
type WorkerConfig struct {
	// Redis is the client to use; the worker does not close it. It must not be nil.
	Redis redis.UniversalClient

	// Queue is the name of the queue. Empty means "breakwater".
	Queue string

	// Handlers do the work, by the kind of the task. A task of a kind that is not here
	// fails, since another worker may know it. At least one is needed.
	Handlers map[string]fallback.Handler

	// Concurrency is the number of handlers that run at a time. Zero means 10.
	Concurrency int

	// MaxAttempts is how often a task is begun before it goes to the dead letters.
	// Attempts that a policy refused do not count; those whose worker died do. Zero means
	// 10.
	MaxAttempts int

	// Timeout bounds each attempt. Zero means 1m.
	Timeout time.Duration

	// MinDelay is the time before the second attempt, which doubles for each further one
	// up to MaxDelay; chance takes off up to half. Zero means 1s.
	MinDelay time.Duration

	// MaxDelay bounds that time, also where a refusal asks for more. Zero means 10m.
	MaxDelay time.Duration

	// Shutdown is how long running handlers are waited for when the worker stops; then
	// their contexts end, and what they have not done is begun again later. Zero means
	// 10s.
	Shutdown time.Duration

	// OnFailure is told of each attempt that did not do the work, on the goroutine of
	// the worker that made it. dead says that the task went to the dead letters. Nil tells
	// nobody.
	OnFailure func(d fallback.Delivery, err error, dead bool)

	// Logger gets what asynq has to say about itself. Nil discards it.
	Logger asynq.Logger
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c WorkerConfig) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	check(c.Redis != nil, "Redis", nil, "want a client, not nil")
	errs = append(errs, deferral.CheckHandlers(kind, c.Handlers))
	check(c.Concurrency >= 0, "Concurrency", c.Concurrency, "at least 0 (0 means 10)")
	check(c.MaxAttempts >= 0, "MaxAttempts", c.MaxAttempts, "at least 0 (0 means 10)")
	check(c.Timeout >= 0, "Timeout", c.Timeout, "at least 0 (0 means 1m)")
	check(c.MinDelay >= 0, "MinDelay", c.MinDelay, "at least 0 (0 means 1s)")
	check(c.MaxDelay >= 0, "MaxDelay", c.MaxDelay, "at least 0 (0 means 10m)")
	if d := c.withDefaults(); c.MinDelay >= 0 && c.MaxDelay >= 0 {
		check(d.MinDelay <= d.MaxDelay, "MaxDelay", d.MaxDelay, "at least MinDelay")
	}
	check(c.Shutdown >= 0, "Shutdown", c.Shutdown, "at least 0 (0 means 10s)")
	return errors.Join(errs...)
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if c.Queue == "" {
		c.Queue = defaultQueue
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = defaultMaxAttempts
	}
	set(&c.Timeout, defaultTimeout)
	set(&c.MinDelay, defaultMinDelay)
	set(&c.MaxDelay, defaultMaxDelay)
	set(&c.Shutdown, defaultShutdown)
	if c.Logger == nil {
		c.Logger = silent{}
	}
	return c
}

// Worker does the work of tasks. All methods are safe for concurrent use.
type Worker struct {
	cfg    WorkerConfig
	runner *deferral.Runner
}

// NewWorker returns a worker, which does nothing before [Worker.Run].
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Worker{cfg: cfg, runner: &deferral.Runner{Handlers: cfg.Handlers, MaxAttempts: cfg.MaxAttempts, Timeout: cfg.Timeout}}, nil
}

// postponed is the error of an attempt that does not count.
type postponed struct{ error }

func (p postponed) Unwrap() error { return p.error }

// Run works until ctx ends, and returns when the running handlers have ended, or Shutdown
// has passed. A Redis that is away is waited for. The error is nil, or says that asynq could
// not begin.
func (w *Worker) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return nil //nolint:nilerr // there is nothing to stop
	}
	values := context.WithoutCancel(ctx) // asynq ends the handlers, and puts their tasks back
	srv := asynq.NewServerFromRedisClient(w.cfg.Redis, asynq.Config{
		Concurrency: w.cfg.Concurrency,
		BaseContext: func() context.Context { return values },
		Queues:      map[string]int{w.cfg.Queue: 1},
		Logger:      w.cfg.Logger,
		// A refusal is no attempt; asynq then leaves its own count of attempts.
		IsFailure: func(err error) bool { _, is := errors.AsType[postponed](err); return !is },
		RetryDelayFunc: func(retried int, err error, _ *asynq.Task) time.Duration {
			return deferral.Delay(retried+1, err, w.cfg.MinDelay, w.cfg.MaxDelay)
		},
		DelayedTaskCheckInterval: max(min(w.cfg.MinDelay, time.Second), 10*time.Millisecond),
		TaskCheckInterval:        100 * time.Millisecond,
		ShutdownTimeout:          w.cfg.Shutdown,
	})
	if err := srv.Start(asynq.HandlerFunc(w.work)); err != nil {
		return fmt.Errorf("asynqdefer: %w", err)
	}
	<-ctx.Done()
	srv.Shutdown()
	return nil
}

// work makes an attempt of a task, and tells asynq what is to become of it.
func (w *Worker) work(ctx context.Context, t *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	d := fallback.Delivery{
		Task:    fallback.Task{Kind: t.Type(), Payload: t.Payload(), Header: t.Headers()},
		Attempt: retried + 1,
	}
	d.Key = id
	if n := len(d.Kind) + 1; len(id) > n && id[:n] == d.Kind+":" {
		d.Key = id[n:]
	}
	verdict, err := w.runner.Run(ctx, d)
	if verdict == deferral.Done {
		return nil
	}
	if w.cfg.OnFailure != nil {
		w.cfg.OnFailure(d, err, verdict == deferral.Dead)
	}
	switch verdict {
	case deferral.Dead:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	case deferral.Postponed:
		return postponed{err}
	default:
		return err
	}
}

// Snapshot returns what the worker has done.
func (w *Worker) Snapshot() fallback.WorkerSnapshot { return w.runner.Snapshot() }

// silent discards what asynq says.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
