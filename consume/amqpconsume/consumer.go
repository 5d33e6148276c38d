// Package amqpconsume consumes a queue of RabbitMQ, or another broker that speaks AMQP 0-9-1,
// under a pipeline. What becomes of a message, and why an open breaker uses up none of its
// deliveries, is package consume's.
//
//	c, err := amqpconsume.New(inventory, amqpconsume.Config{Queue: "orders"}, handle)
//	err = c.Run(ctx, conn)
package amqpconsume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	kind = "amqpconsume"

	defaultPrefetch = 50
	maxPrefetch     = 65535 // of the protocol
)

// A Handler handles one message. What it returns decides what becomes of that: nil
// acknowledges it; [policy.AsPermanent] rejects it, and so do failures that do not end. It must
// not acknowledge the message itself, and not keep it.
type Handler func(ctx context.Context, d *amqp.Delivery) error

// Config configures a [Consumer].
type Config struct {
	consume.Config

	// Queue is the name of the queue, which must be there. It has no default.
	Queue string

	// Tag is the consumer's name at the broker. Empty means "amqpconsume".
	Tag string

	// Prefetch is the number of messages that the broker sends ahead of acknowledgements.
	// One at a time leaves a worker waiting for the network between any two. Fewer than
	// Workers leave some of them idle, so at least that many are asked for. Zero means 50.
	Prefetch int

	// Arguments are the consumer's, such as x-priority. Nil sends none.
	Arguments amqp.Table
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	errs = append(errs, c.Config.Validate())
	check(c.Queue != "", "Queue", c.Queue, "want the name of a queue")
	check(c.Prefetch >= 0 && c.Prefetch <= maxPrefetch, "Prefetch", c.Prefetch, "0 to 65535 (0 means 50)")
	return errors.Join(errs...)
}

// Consumer consumes a queue. It is made by [New] and safe for concurrent use.
type Consumer struct {
	cfg       Config
	processor *consume.Processor
	handler   Handler
}

// New returns a consumer under p, which may be nil. It does nothing before [Consumer.Run].
func New(p *policy.Pipeline, cfg Config, handler Handler) (*Consumer, error) {
	var missing error
	if handler == nil {
		missing = &policy.ConfigError{Policy: kind, Field: "handler", Want: "want a function, not nil"}
	}
	if err := errors.Join(cfg.Validate(), missing); err != nil {
		return nil, err
	}
	processor, err := consume.New(p, cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = processor.Config()
	if cfg.Prefetch == 0 {
		cfg.Prefetch = defaultPrefetch
	}
	cfg.Prefetch = min(max(cfg.Prefetch, cfg.Workers), maxPrefetch)
	return &Consumer{cfg: cfg, processor: processor, handler: handler}, nil
}

// Config returns the effective settings.
func (c *Consumer) Config() Config { return c.cfg }

// Snapshot returns what the consumer is doing and has done.
func (c *Consumer) Snapshot() consume.Snapshot { return c.processor.Snapshot() }

// ErrCanceled reports that the broker has ended the consumer: its queue was deleted, or lives
// on a node that is gone.
var ErrCanceled = errors.New("amqpconsume: the broker has ended the consumer")

// Run consumes over a channel of its own, until ctx ends, and returns nil when the handlers
// that ran have ended; it waits for one that goes on after its context has ended, at Shutdown.
// It returns an error when the queue cannot be consumed, or no longer: the connection or the
// channel is closed, or the broker has ended the consumer. Connecting again is up to the
// caller. What was not acknowledged then comes again.
func (c *Consumer) Run(ctx context.Context, conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("amqpconsume: %w", err)
	}
	defer func() { _ = ch.Close() }() // the broker gives what it has not heard of to others
	lost := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Qos(c.cfg.Prefetch, 0, false); err != nil {
		return fmt.Errorf("amqpconsume: %w", err)
	}
	tag := c.cfg.Tag
	if tag == "" {
		tag = kind // unique within its channel, which is what matters
	}
	deliveries, err := ch.Consume(c.cfg.Queue, tag, false, false, false, false, c.cfg.Arguments)
	if err != nil {
		return fmt.Errorf("amqpconsume: %w", err)
	}
	// Handlers end when their acknowledgement cannot arrive any more.
	work, stop := context.WithCancel(ctx)
	defer stop()
	drained := make(chan struct{})
	arrived := make(chan arrival, c.cfg.Prefetch) // all that the broker sends ahead
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(arrived)
		for d := range deliveries {
			select {
			case arrived <- arrival{d, time.Now()}:
			case <-work.Done():
				return
			}
		}
	})
	for range c.cfg.Workers {
		wg.Go(func() {
			for a := range arrived {
				if work.Err() != nil {
					return // the broker gives the rest to others
				}
				c.handle(work, &a)
			}
		})
	}
	go func() {
		defer close(drained)
		wg.Wait()
	}()
	select {
	case <-ctx.Done():
		_ = ch.Cancel(tag, false) // closes deliveries; an error means that the channel is
		<-drained                 // within Shutdown, if handlers keep to their contexts
		return nil
	case e := <-lost:
		stop()
		<-drained
		return ended(e)
	case <-drained: // because no more deliveries come
		select {
		case e := <-lost:
			return ended(e)
		default:
			return ErrCanceled
		}
	}
}

// ended says why a channel was closed. A nil error means that its connection was, by its owner.
func ended(e *amqp.Error) error {
	if e == nil {
		e = amqp.ErrClosed
	}
	return fmt.Errorf("amqpconsume: %w", e)
}

// arrival is a message, and since when this consumer has it: the broker counts from there.
type arrival struct {
	delivery amqp.Delivery
	at       time.Time
}

// handle handles a message, and tells the broker what is to become of it. An error of that
// means that the channel is closed, and the message comes again.
func (c *Consumer) handle(ctx context.Context, a *arrival) {
	d := &a.delivery
	verdict, _ := c.processor.ProcessMessage(ctx, &consume.Message{Arrived: a.at}, func(ctx context.Context) error { return c.handler(ctx, d) })
	switch verdict {
	case consume.Ack:
		_ = d.Ack(false)
	case consume.Dead:
		_ = d.Reject(false)
	case consume.Requeue:
		_ = d.Nack(false, true)
	}
}
