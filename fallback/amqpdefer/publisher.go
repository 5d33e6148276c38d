package amqpdefer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	// ErrUnroutable reports that no queue would take the task: it was deleted.
	ErrUnroutable = errors.New("amqpdefer: there is no queue for the task")

	// ErrRefused reports that the broker refused the task, as a queue that is full does.
	ErrRefused = errors.New("amqpdefer: the broker refused the task")

	// errLost says that the connection ended before the broker had confirmed.
	errLost = errors.New("amqpdefer: the connection was lost before the broker had confirmed")
)

// publisher publishes on a channel and waits for what the broker says. It is safe for
// concurrent use.
type publisher struct {
	ch   *amqp.Channel
	turn chan struct{} // held by who publishes, so that numbers follow each other
	gone chan struct{} // closed when the channel has ended

	mu      sync.Mutex
	ended   bool
	pending map[uint64]*publication
}

// publication is a message that the broker has not confirmed.
type publication struct {
	returned bool
	result   chan error // room for one
}

func newPublisher(conn *amqp.Connection) (*publisher, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqpdefer: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("amqpdefer: %w", err)
	}
	p := &publisher{ch: ch, turn: make(chan struct{}, 1), gone: make(chan struct{}), pending: map[uint64]*publication{}}
	// Without room: the library hands over a message that comes back before it hands over
	// its confirmation, and so both are seen in this order.
	returns, confirms := ch.NotifyReturn(make(chan amqp.Return)), ch.NotifyPublish(make(chan amqp.Confirmation))
	go p.listen(returns, confirms)
	return p, nil
}

// listen ends with the channel.
func (p *publisher) listen(returns <-chan amqp.Return, confirms <-chan amqp.Confirmation) {
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			if tag, err := strconv.ParseUint(r.CorrelationId, 10, 64); err == nil {
				p.mu.Lock()
				if m := p.pending[tag]; m != nil {
					m.returned = true
				}
				p.mu.Unlock()
			}
		case c, ok := <-confirms:
			if !ok {
				p.end()
				return
			}
			p.mu.Lock()
			m := p.pending[c.DeliveryTag]
			delete(p.pending, c.DeliveryTag)
			p.mu.Unlock()
			switch {
			case m == nil:
			case m.returned:
				m.result <- ErrUnroutable
			case !c.Ack:
				m.result <- ErrRefused
			default:
				m.result <- nil
			}
		}
	}
}

func (p *publisher) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for tag, m := range p.pending {
		delete(p.pending, tag)
		m.result <- errLost
	}
	close(p.gone)
}

// publish sends a message to a queue and waits until the broker has confirmed it. The error
// is ErrUnroutable, ErrRefused, errLost, or that of ctx.
func (p *publisher) publish(ctx context.Context, queue string, msg amqp.Publishing) error {
	select {
	case p.turn <- struct{}{}:
	case <-p.gone:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
	m := &publication{result: make(chan error, 1)}
	tag := p.ch.GetNextPublishSeqNo()
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.pending[tag] = m
	}
	p.mu.Unlock()
	if ended {
		<-p.turn
		return errLost
	}
	msg.CorrelationId = strconv.FormatUint(tag, 10)
	err := p.ch.PublishWithContext(ctx, "", queue, true, false, msg)
	if err != nil {
		p.mu.Lock()
		delete(p.pending, tag)
		p.mu.Unlock()
	}
	<-p.turn
	if err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	select {
	case err := <-m.result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
