package amqpconsume_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/consume/amqpconsume"
	"github.com/breakwater-go/breakwater/internal/rabbitserver"
	"github.com/breakwater-go/breakwater/policy"
)

// One broker serves all tests; each has queues of its own.
func TestConsumer(t *testing.T) {
	t.Parallel()
	s, err := rabbitserver.Start(t.Context())
	if errors.Is(err, rabbitserver.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	for name, test := range map[string]func(*testing.T, *broker){
		"an open breaker uses up no delivery": openBreaker,
		"verdicts":                            verdicts,
		"stops":                               stops,
		"the connection is lost":              lost,
		"the queue goes":                      queueGoes,
		"what waits for a worker is held too": waitsForWorker,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, connect(t, s))
		})
	}
}

// broker is a connection and a quorum queue, of which a message is dead after two deliveries
// that were given back, and a queue for the dead.
type broker struct {
	conn        *amqp.Connection
	ch          *amqp.Channel
	queue, dead string
}

func connect(t *testing.T, s *rabbitserver.Server) *broker {
	t.Helper()
	conn, err := amqp.Dial(s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(t, err)
	b := &broker{conn: conn, ch: ch, queue: t.Name(), dead: t.Name() + " dead"}
	_, err = ch.QueueDeclare(b.dead, true, false, false, false, nil)
	require.NoError(t, err)
	_, err = ch.QueueDeclare(b.queue, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 2,
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.dead,
	})
	require.NoError(t, err)
	return b
}

func (b *broker) publish(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		require.NoError(t, b.ch.PublishWithContext(t.Context(), "", b.queue, true, false, amqp.Publishing{Body: []byte(body)}))
	}
}

// depth returns the number of messages in a queue that nobody has.
func (b *broker) depth(t *testing.T, queue string) int {
	t.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(t, err)
	return q.Messages
}

func pipe(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("stock", policies...)
	require.NoError(t, err)
	return p
}

// run runs a consumer until stop is called, which returns what Run did.
func run(t *testing.T, c *amqpconsume.Consumer, conn *amqp.Connection) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, conn) }()
	return func() error {
		cancel()
		return <-done
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 10*time.Millisecond, what)
}

func numbers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = strconv.Itoa(i)
	}
	return s
}

// Two deliveries are all that a message has. The breaker is open for many more turns than that,
// and each message is handled in its first delivery.
func openBreaker(t *testing.T, b *broker) {
	t.Helper()
	p := pipe(t, breaker.Config{FailureRatio: 0.5, MinCalls: 5, Window: time.Second, OpenFor: 100 * time.Millisecond, Probes: 1})
	const n = 50
	var mu sync.Mutex
	handled := map[string]int{}
	again := 0
	var failures atomic.Int64
	c, err := amqpconsume.New(p, amqpconsume.Config{Queue: b.queue, Config: consume.Config{
		Workers: 10, MaxAttempts: 3, BaseDelay: 10 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
	}}, func(_ context.Context, d *amqp.Delivery) error {
		if failures.Add(1) <= 10 { // five that trip it and five probes, at most
			return errors.New("sick")
		}
		mu.Lock()
		defer mu.Unlock()
		handled[string(d.Body)]++
		if d.Redelivered {
			again++
		}
		return nil
	})
	require.NoError(t, err)
	b.publish(t, numbers(n)...)
	stop := run(t, c, b.conn)
	eventually(t, "all are handled", func() bool { return c.Snapshot().Acked == n })
	require.NoError(t, stop())
	require.Len(t, handled, n)
	assert.Zero(t, again, "redelivered")
	assert.Zero(t, b.depth(t, b.dead), "dead")
	assert.Zero(t, b.depth(t, b.queue))
	assert.Positive(t, c.Snapshot().Refused)
}

func verdicts(t *testing.T, b *broker) {
	t.Helper()
	p := pipe(t, bulkhead.Semaphore{Limit: 2}, breaker.Config{MinCalls: 1000})
	attempts := map[string]int{}
	var mu sync.Mutex
	c, err := amqpconsume.New(p, amqpconsume.Config{Queue: b.queue, Tag: "tagged", Prefetch: 1, Config: consume.Config{
		Workers: 2, MaxAttempts: 3, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond,
	}}, func(_ context.Context, d *amqp.Delivery) error {
		mu.Lock()
		attempts[string(d.Body)]++
		n := attempts[string(d.Body)]
		mu.Unlock()
		switch string(d.Body) {
		case "permanent":
			return policy.AsPermanent(errors.New("malformed"))
		case "failing":
			return errors.New("boom")
		case "panicking":
			panic("boom")
		case "late":
			if n < 3 {
				return errors.New("boom")
			}
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2, c.Config().Prefetch, "not fewer than there are workers")
	b.publish(t, "fine", "permanent", "failing", "panicking", "late")
	stop := run(t, c, b.conn)
	eventually(t, "all are judged", func() bool { s := c.Snapshot(); return s.Acked+s.Dead == 5 })
	eventually(t, "the dead arrive", func() bool { return b.depth(t, b.dead) == 3 })
	require.NoError(t, stop())
	assert.Equal(t, map[string]int{"fine": 1, "permanent": 1, "failing": 3, "panicking": 3, "late": 3}, attempts)
	assert.Zero(t, b.depth(t, b.queue))
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			assert.Zero(t, ps.Bulkhead.InFlight)
		}
		if ps.Breaker != nil {
			assert.EqualValues(t, 11, ps.Breaker.Calls)
			assert.EqualValues(t, 8, ps.Breaker.Failures, "a malformed message is nobody's failure")
		}
	}
}

// What runs may end, and the rest comes again.
func stops(t *testing.T, b *broker) {
	t.Helper()
	const n = 20
	began := make(chan struct{}, n)
	free := make(chan struct{})
	c, err := amqpconsume.New(nil, amqpconsume.Config{Queue: b.queue, Config: consume.Config{Workers: 3, Shutdown: time.Minute}},
		func(context.Context, *amqp.Delivery) error {
			began <- struct{}{}
			<-free
			return nil
		})
	require.NoError(t, err)
	b.publish(t, numbers(n)...)
	stop := run(t, c, b.conn)
	for range 3 {
		<-began
	}
	time.AfterFunc(100*time.Millisecond, func() { close(free) }) // after the stop, most likely
	require.NoError(t, stop())
	s := c.Snapshot()
	require.GreaterOrEqual(t, s.Acked, uint64(3))
	eventually(t, "the rest is there", func() bool { return b.depth(t, b.queue) == n-int(s.Acked) })
}

func lost(t *testing.T, b *broker) {
	t.Helper()
	c, err := amqpconsume.New(nil, amqpconsume.Config{Queue: b.queue}, func(context.Context, *amqp.Delivery) error { return nil })
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context(), b.conn) }()
	b.publish(t, "one")
	eventually(t, "it works", func() bool { return c.Snapshot().Acked == 1 })
	require.NoError(t, b.conn.Close())
	require.ErrorIs(t, <-done, amqp.ErrClosed)
	require.ErrorIs(t, c.Run(t.Context(), b.conn), amqp.ErrClosed)
}

func queueGoes(t *testing.T, b *broker) {
	t.Helper()
	c, err := amqpconsume.New(nil, amqpconsume.Config{Queue: b.queue}, func(context.Context, *amqp.Delivery) error { return nil })
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context(), b.conn) }()
	b.publish(t, "one")
	eventually(t, "it works", func() bool { return c.Snapshot().Acked == 1 })
	_, err = b.ch.QueueDelete(b.queue, false, false, false)
	require.NoError(t, err)
	require.ErrorIs(t, <-done, amqpconsume.ErrCanceled)
	require.ErrorContains(t, c.Run(t.Context(), b.conn), "NOT_FOUND")
}

func TestNewChecksItsConfig(t *testing.T) {
	t.Parallel()
	_, err := amqpconsume.New(nil, amqpconsume.Config{Prefetch: 70_000, Config: consume.Config{Workers: -1}}, nil)
	for _, field := range []string{"amqpconsume.Queue", "amqpconsume.Prefetch", "amqpconsume.handler", "consume.Workers"} {
		require.ErrorContains(t, err, field)
	}
}

// The broker counts from when it has sent a message: those that wait for a worker go back with
// those that have one, not one after the other.
func waitsForWorker(t *testing.T, b *broker) {
	t.Helper()
	p := pipe(t, bulkhead.Semaphore{Limit: 1})
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	defer h.Release()
	const n, hold = 20, 2 * time.Second
	c, err := amqpconsume.New(p, amqpconsume.Config{Queue: b.queue, Prefetch: n, Config: consume.Config{Workers: 1, MaxHold: hold}},
		func(context.Context, *amqp.Delivery) error { return nil })
	require.NoError(t, err)
	b.publish(t, numbers(n)...)
	began := time.Now()
	stop := run(t, c, b.conn)
	eventually(t, "all have gone back", func() bool { return c.Snapshot().Requeued >= n })
	assert.Less(t, time.Since(began), n/2*hold)
	require.NoError(t, stop())
}
