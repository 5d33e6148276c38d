package amqpdefer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/internal/deferral"
	"github.com/breakwater-go/breakwater/policy"
)

// ErrClosed is returned by a [Queue] that was closed.
var ErrClosed = errors.New("amqpdefer: the queue is closed")

const defaultMaxInFlight = 1000

// QueueConfig configures a [Queue].
type QueueConfig struct {
	Broker

	// MaxInFlight is the number of tasks that may wait for the broker's confirmation at a
	// time; further ones wait for their turn. Zero means 1000.
	MaxInFlight int
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c QueueConfig) Validate() error {
	errs := c.validate()
	if c.MaxInFlight < 0 {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "MaxInFlight", Value: c.MaxInFlight, Want: "at least 0 (0 means 1000)"})
	}
	return errors.Join(errs...)
}

// Queue publishes tasks to RabbitMQ. It implements [fallback.Queue] and is safe for
// concurrent use.
type Queue struct {
	cfg    QueueConfig
	cancel context.CancelFunc
	ended  chan struct{} // the goroutine that keeps the connection has ended
	slots  chan struct{}

	mu      sync.Mutex
	conn    *amqp.Connection
	pub     *publisher    // nil while there is no connection
	changed chan struct{} // closed when pub is set, or the queue closed
	lastErr error
	closed  bool

	accepted, refused, unconfirmed, connections atomic.Uint64
	inFlight                                    atomic.Int64
}

var _ fallback.Queue = (*Queue)(nil)

// NewQueue returns a queue, which connects in the background, and again whenever the
// connection is lost. It must be closed.
func NewQueue(cfg QueueConfig) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Broker = cfg.withDefaults()
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = defaultMaxInFlight
	}
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{cfg: cfg, cancel: cancel, ended: make(chan struct{}), slots: make(chan struct{}, cfg.MaxInFlight), changed: make(chan struct{})}
	go q.keep(ctx)
	return q, nil
}

// keep keeps the queue connected.
func (q *Queue) keep(ctx context.Context) {
	defer close(q.ended)
	for failures := 0; ctx.Err() == nil; {
		conn, pub, err := q.connect(ctx)
		if err == nil {
			failures = 0
			q.set(conn, pub)
			select {
			case <-pub.gone:
			case <-ctx.Done():
			}
			q.set(nil, nil)
			_ = conn.Close()
			<-pub.gone
		} else {
			failures++
			q.mu.Lock()
			q.lastErr = err
			q.mu.Unlock()
		}
		pause(ctx, deferral.Delay(failures, nil, minReconnect, maxReconnect))
	}
}

func (q *Queue) connect(ctx context.Context) (*amqp.Connection, *publisher, error) {
	conn, err := q.cfg.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	pub, err := newPublisher(conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	q.connections.Add(1)
	return conn, pub, nil
}

// set makes pub the present publisher.
func (q *Queue) set(conn *amqp.Connection, pub *publisher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setLocked(conn, pub)
}

func (q *Queue) setLocked(conn *amqp.Connection, pub *publisher) {
	switch {
	case q.closed:
	case pub != nil:
		q.lastErr = nil
		close(q.changed)
	case q.pub != nil:
		q.changed = make(chan struct{})
	}
	q.conn, q.pub = conn, pub
}

// publisher returns the present publisher, and waits for one until ctx ends.
func (q *Queue) publisher(ctx context.Context) (*publisher, error) {
	for {
		q.mu.Lock()
		pub, changed, closed := q.pub, q.changed, q.closed
		q.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case pub != nil:
			return pub, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			q.mu.Lock()
			last := q.lastErr
			q.mu.Unlock()
			return nil, errors.Join(fmt.Errorf("amqpdefer: not connected: %w", ctx.Err()), last)
		}
	}
}

// Enqueue publishes t and returns nil when the broker has confirmed it. While there is no
// connection it waits for one, and publishes again what was lost with an old one, until ctx
// ends. The error is [ErrUnroutable], [ErrRefused], [ErrClosed], that of
// [fallback.Task.Validate], or that of ctx: the task may be there or not then.
func (q *Queue) Enqueue(ctx context.Context, t fallback.Task) error {
	if err := t.Validate(); err != nil {
		return err
	}
	q.inFlight.Add(1)
	defer q.inFlight.Add(-1)
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	case <-ctx.Done():
		q.unconfirmed.Add(1)
		return ctx.Err()
	}
	for {
		pub, err := q.publisher(ctx)
		if err != nil {
			q.unconfirmed.Add(1)
			return err
		}
		err = pub.publish(ctx, q.cfg.Queue, messageOf(t, 1))
		switch {
		case err == nil:
			q.accepted.Add(1)
			return nil
		case errors.Is(err, ErrUnroutable):
			q.renew(pub)
			q.refused.Add(1)
			return err
		case errors.Is(err, ErrRefused):
			q.refused.Add(1)
			return err
		case ctx.Err() != nil:
			q.unconfirmed.Add(1)
			return err
		}
		// Lost: it may have arrived, and once more does no harm.
		select {
		case <-pub.gone:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if q.pub == pub { // not noticed yet
			q.setLocked(nil, nil)
		}
		q.mu.Unlock()
	}
}

// renew ends the connection, so that the queues are declared again.
func (q *Queue) renew(pub *publisher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pub == pub && q.conn != nil {
		go func(conn *amqp.Connection) { _ = conn.Close() }(q.conn)
	}
}

// DeferSnapshot returns the counters of the queue, for the snapshot of a pipeline.
func (q *Queue) DeferSnapshot() policy.DeferSnapshot {
	q.mu.Lock()
	connected := q.pub != nil
	q.mu.Unlock()
	s := policy.DeferSnapshot{
		Accepted: q.accepted.Load(), Refused: q.refused.Load(), Unconfirmed: q.unconfirmed.Load(),
		InFlight: int(q.inFlight.Load()), Connected: connected,
	}
	if n := q.connections.Load(); n > 1 {
		s.Reconnects = n - 1
	}
	return s
}

// Depth asks the broker how many tasks there are. It does not say how many a worker has
// fetched, so Running is 0. The context ends the wait for a connection.
func (q *Queue) Depth(ctx context.Context) (fallback.Depth, error) {
	var d fallback.Depth
	if _, err := q.publisher(ctx); err != nil {
		return d, err
	}
	q.mu.Lock()
	conn := q.conn
	q.mu.Unlock()
	if conn == nil {
		return d, errLost
	}
	ch, err := conn.Channel()
	if err != nil {
		return d, fmt.Errorf("amqpdefer: %w", err)
	}
	defer func() { _ = ch.Close() }()
	count := func(to *int, name string) {
		if err != nil {
			return
		}
		var queue amqp.Queue
		if queue, err = ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
			err = fmt.Errorf("amqpdefer: %w", err)
		}
		*to += queue.Messages
	}
	count(&d.Ready, q.cfg.Queue)
	count(&d.Dead, q.cfg.deadName())
	for _, delay := range q.cfg.Delays {
		count(&d.Waiting, q.cfg.retryName(delay))
	}
	return d, err
}

// Close ends the connection. Tasks that are not confirmed by then are unconfirmed. Further
// calls wait for the end and do nothing else.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		if q.pub == nil {
			close(q.changed)
		}
	}
	q.mu.Unlock()
	q.cancel()
	select {
	case <-q.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
