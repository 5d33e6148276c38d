package kafkaconsume

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/consume"
)

// part handles the records of one partition.
type part struct {
	c      *Consumer
	client *kgo.Client
	at     place
	cancel context.CancelFunc
	fail   context.CancelCauseFunc // ends Run
	more   chan struct{}           // there may be records
	ended  chan struct{}

	mu      sync.Mutex
	records []*kgo.Record
}

// add takes records that were fetched. No more are until these are done.
func (p *part) add(records []*kgo.Record) {
	p.mu.Lock()
	p.records = append(p.records, records...)
	p.client.PauseFetchPartitions(map[string][]int32{p.at.topic: {p.at.partition}})
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *part) resume() {
	p.client.ResumeFetchPartitions(map[string][]int32{p.at.topic: {p.at.partition}})
}

// next returns the first record, or nil, and then lets more be fetched. It stays the first
// until it is done.
func (p *part) next() *kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) == 0 {
		p.records = nil
		p.resume()
		return nil
	}
	return p.records[0]
}

// done takes the first record away.
func (p *part) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = p.records[1:]
}

// run handles records in their order until ctx ends, or one is in the way.
func (p *part) run(ctx context.Context) {
	defer close(p.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.more:
		}
		for r := p.next(); r != nil; r = p.next() {
			if !p.handle(ctx, r) {
				return
			}
			p.done()
		}
	}
}

// handle handles a record, on a worker that is free. It reports false when the partition is to
// be left alone.
func (p *part) handle(ctx context.Context, r *kgo.Record) bool {
	var m consume.Message
	for {
		select {
		case <-ctx.Done():
			return false
		case p.c.free <- struct{}{}:
		}
		verdict, why := p.c.processor.ProcessMessage(ctx, &m, func(ctx context.Context) error { return p.c.handler(ctx, r) })
		<-p.c.free
		switch verdict {
		case consume.Ack:
		case consume.Requeue:
			if ctx.Err() != nil {
				return false
			}
			continue // held for MaxHold: nobody else would have it, so go on, with the attempts it has
		case consume.Dead:
			if err := p.bury(ctx, r, why); err != nil {
				if ctx.Err() != nil {
					return false // it comes again, here or elsewhere
				}
				p.fail(&DeadError{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: err})
				return false
			}
		}
		p.client.MarkCommitRecords(r)
		return true
	}
}

func (p *part) bury(ctx context.Context, r *kgo.Record, why error) error {
	if p.c.cfg.DeadLetter == nil {
		return why
	}
	keep, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		t := time.NewTimer(p.c.cfg.Shutdown)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-keep.Done():
		}
	})()
	if err := p.c.cfg.DeadLetter(keep, r, why); err != nil {
		return errors.Join(why, err)
	}
	return nil
}
