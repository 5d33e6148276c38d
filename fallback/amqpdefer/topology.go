package amqpdefer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	kind               = "amqpdefer"
	defaultQueue       = "breakwater"
	defaultMaxAttempts = 10
	defaultMaxReturns  = 20
	dialTimeout        = 5 * time.Second
	heartbeat          = 10 * time.Second
	minReconnect       = 100 * time.Millisecond
	maxReconnect       = 10 * time.Second
)

// Broker says where the tasks are. It must be the same for a [Queue] and its workers: they
// declare what is in it, and the broker refuses a declaration that differs.
type Broker struct {
	// URL is that of RabbitMQ, such as "amqp://user:password@localhost:5672/".
	URL string

	// TLS is used for URLs with amqps. Nil means the defaults.
	TLS *tls.Config

	// Queue is the name of the queue, with which all other names begin. Empty means
	// "breakwater".
	Queue string

	// MaxAttempts is how often a task is tried before it goes to the dead letters.
	// Attempts that a policy refused do not count, nor do those whose worker died; see
	// MaxReturns. Zero means 10.
	MaxAttempts int

	// MaxReturns is how often the broker takes a task back from workers that died, or lost
	// their connection, before it goes to the dead letters: the bound for a task that kills
	// its workers. It also counts for those that were only fetched ahead, so it must not be
	// small. Zero means 20.
	MaxReturns int

	// Delays are the times before the second attempt, the third, and so on; the last one
	// is for all that follow. Zero length means 1s, 10s, 1m and 10m.
	Delays []time.Duration
}

func (b Broker) validate() []error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	_, err := amqp.ParseURI(b.URL)
	check(err == nil, "URL", nil, "want an amqp or amqps URL") // it holds a password
	check(len(b.Queue) <= 200, "Queue", nil, "want at most 200 bytes")
	check(b.MaxAttempts >= 0, "MaxAttempts", b.MaxAttempts, "at least 0 (0 means 10)")
	check(b.MaxReturns >= 0 && b.MaxReturns <= math.MaxInt32, "MaxReturns", b.MaxReturns, "0 to 2147483647 (0 means 20)")
	for _, d := range b.Delays {
		check(d >= time.Millisecond, "Delays", d, "at least 1ms")
	}
	return errs
}

func (b Broker) withDefaults() Broker {
	if b.Queue == "" {
		b.Queue = defaultQueue
	}
	if b.MaxAttempts == 0 {
		b.MaxAttempts = defaultMaxAttempts
	}
	if b.MaxReturns == 0 {
		b.MaxReturns = defaultMaxReturns
	}
	if len(b.Delays) == 0 {
		b.Delays = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	}
	return b
}

func (b Broker) deadName() string { return b.Queue + ".dead" }

func (b Broker) retryName(d time.Duration) string { return b.Queue + ".retry." + d.String() }

// delay returns the delay before the attempt after attempt n, and not before least if there
// is such a delay.
func (b Broker) delay(n int, least time.Duration) time.Duration {
	last := len(b.Delays) - 1
	i := min(max(n-1, 0), last)
	for i < last && b.Delays[i] < least {
		i++
	}
	return b.Delays[i]
}

// dial connects, and declares what tasks need.
func (b Broker) dial(ctx context.Context) (*amqp.Connection, error) {
	props := amqp.NewConnectionProperties()
	props.SetClientConnectionName(kind + " " + b.Queue)
	conn, err := amqp.DialConfig(b.URL, amqp.Config{
		TLSClientConfig: b.TLS,
		Heartbeat:       heartbeat,
		Properties:      props,
		Dial: func(network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// The library lifts it when the handshake is over.
			return c, c.SetDeadline(time.Now().Add(dialTimeout))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("amqpdefer: %w", err)
	}
	if err := b.declare(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("amqpdefer: %w", err), conn.Close())
	}
	return conn, nil
}

// declare makes the queues. Messages move between them at least once, which needs queues
// that refuse what they cannot take.
func (b Broker) declare(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }()
	if err := ch.ExchangeDeclare(b.deadName(), amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		return err
	}
	quorum := func(name string, args amqp.Table) error {
		all := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
		maps.Copy(all, args)
		_, err := ch.QueueDeclare(name, true, false, false, false, all)
		return err
	}
	if err := quorum(b.deadName(), nil); err != nil {
		return err
	}
	if err := ch.QueueBind(b.deadName(), "", b.deadName(), false, nil); err != nil {
		return err
	}
	if err := quorum(b.Queue, amqp.Table{
		"x-dead-letter-exchange": b.deadName(), "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		"x-delivery-limit": int32(b.MaxReturns), //nolint:gosec // it was checked
	}); err != nil {
		return err
	}
	for _, d := range b.Delays {
		if err := quorum(b.retryName(d), amqp.Table{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.Queue,
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			"x-message-ttl": d.Milliseconds(),
		}); err != nil {
			return err
		}
	}
	return nil
}
