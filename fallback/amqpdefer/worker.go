package amqpdefer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/internal/deferral"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	defaultConsumers = 10
	defaultPrefetch  = 50
	defaultTimeout   = time.Minute
	defaultShutdown  = 10 * time.Second
	maxPrefetch      = 65535 // of the protocol
)

// WorkerConfig configures a [Worker].
type WorkerConfig struct {
	Broker

	// Handlers do the work, by the kind of the task. A task of a kind that is not here
	// fails, since another worker may know it. At least one is needed.
	Handlers map[string]fallback.Handler

	// Consumers is the number of handlers that run at a time, each fed by a channel of
	// its own. Zero means 10.
	Consumers int

	// Prefetch is the number of tasks that each consumer fetches ahead. One task at a time
	// leaves it waiting for the network between any two. Zero means 50.
	Prefetch int

	// Timeout bounds each attempt. Zero means 1m.
	Timeout time.Duration

	// Shutdown is how long tasks that were fetched are worked on when the worker stops;
	// then the contexts of the handlers end, and what they have not done goes back. Zero
	// means 10s.
	Shutdown time.Duration

	// OnFailure is told of each attempt that did not do the work, on the goroutine of
	// the worker that made it. dead says that the task goes to the dead letters. Nil tells
	// nobody.
	OnFailure func(d fallback.Delivery, err error, dead bool)

	// OnError is told why there is no connection, or why it was lost, on the goroutine that
	// connects. Nil tells nobody.
	OnError func(err error)
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c WorkerConfig) Validate() error {
	errs := c.validate()
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	errs = append(errs, deferral.CheckHandlers(kind, c.Handlers))
	check(c.Consumers >= 0, "Consumers", c.Consumers, "at least 0 (0 means 10)")
	check(c.Prefetch >= 0 && c.Prefetch <= maxPrefetch, "Prefetch", c.Prefetch, "0 to 65535 (0 means 50)")
	check(c.Timeout >= 0, "Timeout", c.Timeout, "at least 0 (0 means 1m)")
	check(c.Shutdown >= 0, "Shutdown", c.Shutdown, "at least 0 (0 means 10s)")
	return errors.Join(errs...)
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	c.Broker = c.Broker.withDefaults()
	if c.Consumers == 0 {
		c.Consumers = defaultConsumers
	}
	if c.Prefetch == 0 {
		c.Prefetch = defaultPrefetch
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Shutdown == 0 {
		c.Shutdown = defaultShutdown
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

// Snapshot returns what the worker has done.
func (w *Worker) Snapshot() fallback.WorkerSnapshot { return w.runner.Snapshot() }

// Run works until ctx ends, and returns when the tasks that were fetched are done, or Shutdown
// has passed. It connects again when the connection is lost.
func (w *Worker) Run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		began, err := w.session(ctx)
		if err != nil && w.cfg.OnError != nil {
			w.cfg.OnError(err)
		}
		failures++
		if began {
			failures = 0
		}
		if ctx.Err() == nil {
			pause(ctx, deferral.Delay(failures, nil, minReconnect, maxReconnect))
		}
	}
}

// session works for as long as a connection lasts. It reports whether it began to.
func (w *Worker) session(ctx context.Context) (began bool, err error) {
	conn, err := w.cfg.dial(ctx)
	if err != nil {
		return false, err
	}
	lost := conn.NotifyClose(make(chan *amqp.Error, 1))
	// Handlers go on when ctx ends, for a while, and end when their acknowledgement cannot
	// arrive any more.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	pub, err := newPublisher(conn)
	if err != nil {
		return false, errors.Join(err, conn.Close())
	}
	var wg sync.WaitGroup
	defer func() {
		stop()
		_ = conn.Close()
		wg.Wait()
		<-pub.gone
	}()
	for i := range w.cfg.Consumers {
		if err := w.consume(ctx, work, conn, pub, i, &wg); err != nil {
			return false, err
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		wg.Wait()
	}()
	select {
	case e := <-lost:
		stop()
		<-drained
		if e != nil {
			err = fmt.Errorf("amqpdefer: %w", e)
		}
	case <-drained: // all channels were closed by the broker
		err = errors.New("amqpdefer: the broker has ended all consumers")
	case <-ctx.Done():
		pauseUntil(drained, w.cfg.Shutdown)
		stop()
		pauseUntil(drained, time.Second) // they put back what they hold
	}
	return true, err
}

// pauseUntil waits until done is closed, for at most d.
func pauseUntil(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// consume starts a consumer. When ctx ends it fetches no more, and does what it has fetched.
func (w *Worker) consume(ctx, work context.Context, conn *amqp.Connection, pub *publisher, i int, wg *sync.WaitGroup) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqpdefer: %w", err)
	}
	if err := ch.Qos(w.cfg.Prefetch, 0, false); err != nil {
		return fmt.Errorf("amqpdefer: %w", err)
	}
	tag := fmt.Sprintf("%s-%d", kind, i)
	deliveries, err := ch.Consume(w.cfg.Queue, tag, false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("amqpdefer: %w", err)
	}
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		for d := range deliveries {
			if work.Err() != nil {
				return // the broker gives the rest to others
			}
			w.do(work, pub, &d)
		}
	})
	wg.Go(func() {
		select {
		case <-ctx.Done():
			_ = ch.Cancel(tag, false)
		case <-ended:
		}
	})
	return nil
}

// do makes an attempt of a task and tells the broker what is to become of it. What is to be
// tried again is published before it is acknowledged, so that it is never nowhere.
func (w *Worker) do(ctx context.Context, pub *publisher, m *amqp.Delivery) {
	d := deliveryOf(m)
	verdict, err := w.runner.Run(ctx, d)
	if verdict != deferral.Done && w.cfg.OnFailure != nil {
		w.cfg.OnFailure(d, err, verdict == deferral.Dead)
	}
	next, queue := d.Attempt, ""
	switch verdict {
	case deferral.Done:
		_ = m.Ack(false) // an error means that the connection is lost, and the task comes again
		return
	case deferral.Dead:
		_ = m.Reject(false)
		return
	case deferral.Again:
		next++
		queue = w.cfg.retryName(w.cfg.delay(d.Attempt, 0))
	case deferral.Postponed:
		queue = w.cfg.Queue
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			queue = w.cfg.retryName(w.cfg.delay(1, re.RetryAfter))
		}
	}
	pctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	if pub.publish(pctx, queue, messageOf(d.Task, next)) != nil {
		_ = m.Nack(false, true) // at once, which is better than never
		return
	}
	_ = m.Ack(false)
}
