// Package kafkaconsume consumes topics of Kafka as a member of a group, under a pipeline, with
// franz-go. What becomes of a record is package consume's.
//
//	c, err := kafkaconsume.New(inventory, kafkaconsume.Config{DeadLetter: produce}, handle)
//	client, err := kgo.NewClient(append(c.Options(), kgo.SeedBrokers(…), kgo.ConsumerGroup("stock"), kgo.ConsumeTopics("orders"))...)
//	err = c.Run(ctx, client)
//
// The records of a partition are handled one after the other, in their order, and those of
// different partitions beside each other, as many as there are Workers. A record's offset is
// committed when it has been handled, so after a crash, some records come again.
//
// Kafka counts no deliveries, and its clients say in the background that they are alive. So
// while the pipeline refuses, a record is held for as long as it takes, and fetching stops for
// partitions whose records wait.
package kafkaconsume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/policy"
)

const kind = "kafkaconsume"

// A Handler handles one record. Nil as an error commits it; [policy.AsPermanent] makes it a
// dead letter, and so do failures that do not end.
type Handler func(ctx context.Context, r *kgo.Record) error

// Config configures a [Consumer]. The zero value is valid.
type Config struct {
	consume.Config

	// DeadLetter keeps a record that cannot be handled, such as in a topic for them, and is
	// given why. When it returns nil, the record is committed. It runs on the goroutine of
	// the partition; its context ends Shutdown after the consumer stops, or has lost the
	// partition. Nil means that nothing is passed over: such a record, and an error of
	// DeadLetter, end [Consumer.Run].
	DeadLetter func(ctx context.Context, r *kgo.Record, why error) error

	// OnError is told what goes wrong when records are fetched; the client goes on by
	// itself. It runs on the goroutine of Run. Nil tells nobody.
	OnError func(topic string, partition int32, err error)
}

// Consumer consumes topics. It is made by [New]. [Consumer.Run] may be called once at a time;
// all other methods are safe for concurrent use.
type Consumer struct {
	cfg       Config
	processor *consume.Processor
	handler   Handler
	free      chan struct{} // one for each worker

	mu    sync.Mutex
	parts map[place]*part
}

// place is where a record is from.
type place struct {
	topic     string
	partition int32
}

// New returns a consumer under p, which may be nil. It does nothing before [Consumer.Run].
func New(p *policy.Pipeline, cfg Config, handler Handler) (*Consumer, error) {
	var missing error
	if handler == nil {
		missing = &policy.ConfigError{Policy: kind, Field: "handler", Want: "want a function, not nil"}
	}
	processor, err := consume.New(p, cfg.Config)
	if err := errors.Join(err, missing); err != nil {
		return nil, err
	}
	cfg.Config = processor.Config()
	return &Consumer{
		cfg: cfg, processor: processor, handler: handler,
		free: make(chan struct{}, cfg.Workers), parts: make(map[place]*part),
	}, nil
}

// Config returns the effective settings.
func (c *Consumer) Config() Config { return c.cfg }

// Snapshot returns what the consumer is doing and has done.
func (c *Consumer) Snapshot() consume.Snapshot { return c.processor.Snapshot() }

// Options returns what the client that Run is given needs: only records that were handled are
// committed, and a partition leaves when its handler has ended.
func (c *Consumer) Options() []kgo.Opt {
	return []kgo.Opt{
		kgo.AutoCommitMarks(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
			c.drop(gone)
			_ = client.CommitMarkedOffsets(ctx) // else they come again, to another member
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { c.drop(gone) }),
	}
}

// DeadError reports a record that could not be handled, with nowhere to keep it. Its offset is
// not committed, so it is the first that comes again.
type DeadError struct {
	Topic     string
	Partition int32
	Offset    int64
	Err       error // why, and what DeadLetter returned
}

// Error says which record it is and why.
func (e *DeadError) Error() string {
	return fmt.Sprintf("kafkaconsume: record %d of %s/%d cannot be handled: %v", e.Offset, e.Topic, e.Partition, e.Err)
}

// Unwrap returns why.
func (e *DeadError) Unwrap() error { return e.Err }

// Run consumes with a client that was made with [Consumer.Options], until ctx ends, and returns
// nil when the handlers that ran have ended, and what they did is committed; it waits for one
// that goes on after its context has ended, at Shutdown. So does a rebalance that takes its
// partition away, so Shutdown should be below the client's RebalanceTimeout. It returns a [*DeadError] for a record that is in the way, and an error when the
// client is closed, which is up to the caller. Run again with the same client, it goes on with
// the first record that was not handled.
func (c *Consumer) Run(ctx context.Context, client *kgo.Client) error {
	ctx, fail := context.WithCancelCause(ctx)
	closed := false
	defer func() {
		fail(nil)
		c.finish(ctx, client, closed)
	}()
	for {
		fetches := client.PollFetches(ctx)
		if fetches.IsClientClosed() {
			closed = true
			return fmt.Errorf("kafkaconsume: %w", kgo.ErrClientClosed)
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if len(f.Records) > 0 {
				c.part(ctx, fail, client, place{f.Topic, f.Partition}).add(f.Records)
			}
		})
		if ctx.Err() != nil {
			if dead, ok := errors.AsType[*DeadError](context.Cause(ctx)); ok {
				return dead
			}
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			if c.cfg.OnError != nil {
				c.cfg.OnError(topic, partition, err)
			}
		})
		client.AllowRebalance()
	}
}

// finish ends what Run has begun. ctx has ended; what was done before is committed
// nevertheless.
func (c *Consumer) finish(ctx context.Context, client *kgo.Client, closed bool) {
	if !closed {
		client.PollFetches(ctx) // fetches nothing: it waits for a rebalance, and keeps the next from beginning
		defer client.AllowRebalance()
	}
	parts := c.dropAll()
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Shutdown)
	defer cancel()
	_ = client.CommitMarkedOffsets(commit) // else they come again
	if closed {
		return
	}
	// The client takes what was fetched for done. Another Run must not pass over it.
	back := make(map[string]map[int32]kgo.EpochOffset)
	for _, p := range parts {
		if len(p.records) == 0 {
			continue
		}
		if back[p.at.topic] == nil {
			back[p.at.topic] = make(map[int32]kgo.EpochOffset)
		}
		r := p.records[0]
		back[p.at.topic][p.at.partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset}
	}
	client.SetOffsets(back)
}

// part returns what handles the records of a partition.
func (c *Consumer) part(ctx context.Context, fail context.CancelCauseFunc, client *kgo.Client, at place) *part {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.parts[at]
	if p == nil {
		p = &part{c: c, client: client, at: at, fail: fail, more: make(chan struct{}, 1), ended: make(chan struct{})}
		ctx, p.cancel = context.WithCancel(ctx)
		c.parts[at] = p
		go p.run(ctx)
	}
	return p
}

// drop ends the handling of partitions that this member no longer has.
func (c *Consumer) drop(gone map[string][]int32) {
	var parts []*part
	c.mu.Lock()
	for topic, partitions := range gone {
		for _, n := range partitions {
			at := place{topic, n}
			if p := c.parts[at]; p != nil {
				parts = append(parts, p)
				delete(c.parts, at)
			}
		}
	}
	c.mu.Unlock()
	stop(parts)
}

// dropAll ends the handling of all partitions, and returns them.
func (c *Consumer) dropAll() []*part {
	c.mu.Lock()
	parts := make([]*part, 0, len(c.parts))
	for _, p := range c.parts {
		parts = append(parts, p)
	}
	clear(c.parts)
	c.mu.Unlock()
	stop(parts)
	return parts
}

func stop(parts []*part) {
	for _, p := range parts {
		p.cancel()
	}
	for _, p := range parts {
		<-p.ended
		p.resume() // whoever has the partition next, which may be this client
	}
}
