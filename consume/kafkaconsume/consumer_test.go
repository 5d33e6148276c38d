package kafkaconsume_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/consume/kafkaconsume"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	topic      = "orders"
	partitions = 3
)

// cluster is a Kafka in this process, with one topic.
type cluster struct{ addrs []string }

func start(t *testing.T) *cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &cluster{addrs: c.ListenAddrs()}
}

func (c *cluster) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.addrs...))...)
	require.NoError(t, err)
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// produce sends n records to each partition, with their numbers as values.
func (c *cluster) produce(t *testing.T, n int) {
	t.Helper()
	client := c.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(partitions) {
		for i := range n {
			r := &kgo.Record{Topic: topic, Partition: p, Value: []byte(strconv.Itoa(i))}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
}

// member is a consumer of a group.
type member struct {
	*kafkaconsume.Consumer

	client *kgo.Client
	cancel context.CancelFunc
	done   chan error
}

func (c *cluster) join(t *testing.T, p *policy.Pipeline, cfg kafkaconsume.Config, h kafkaconsume.Handler) *member {
	t.Helper()
	consumer, err := kafkaconsume.New(p, cfg, h)
	require.NoError(t, err)
	client := c.client(t, append(consumer.Options(),
		kgo.ConsumerGroup("stock"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{Consumer: consumer, client: client, cancel: cancel, done: make(chan error, 1)}
	go func() { m.done <- consumer.Run(ctx, client) }()
	return m
}

// leave ends a member as a program does.
func (m *member) leave() error {
	m.cancel()
	err := <-m.done
	m.client.CloseAllowingRebalance()
	return err
}

// seen notes which records were handled.
type seen struct {
	mu    sync.Mutex
	order [partitions][]string
}

func (s *seen) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order[r.Partition] = append(s.order[r.Partition], string(r.Value))
}

func (s *seen) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.order {
		n += len(o)
	}
	return n
}

func numbers(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = strconv.Itoa(i)
	}
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}

func quick() consume.Config {
	return consume.Config{MaxAttempts: 3, BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond}
}

// While the breaker is open nothing is passed over and nothing comes twice, and each partition
// keeps its order; what is done is committed.
func TestOpenBreakerLosesNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	const n = 40
	c.produce(t, n)
	p, err := policy.New("stock", breaker.Config{FailureRatio: 0.5, MinCalls: 5, Window: time.Second, OpenFor: 50 * time.Millisecond, Probes: 1})
	require.NoError(t, err)
	var calls atomic.Int64
	var got seen
	m := c.join(t, p, kafkaconsume.Config{Config: quick()}, func(_ context.Context, r *kgo.Record) error {
		if calls.Add(1) <= 10 {
			return errors.New("sick")
		}
		got.add(r)
		return nil
	})
	eventually(t, "all are handled", func() bool { return m.Snapshot().Acked == n*partitions })
	require.NoError(t, m.leave())
	for i, o := range got.order {
		assert.Equal(t, numbers(n), o, "partition %d", i)
	}
	assert.Zero(t, m.Snapshot().Dead)
	assert.Positive(t, m.Snapshot().Refused)

	var again seen
	c.produce(t, 1)
	m = c.join(t, nil, kafkaconsume.Config{}, func(_ context.Context, r *kgo.Record) error { again.add(r); return nil })
	eventually(t, "what is new is handled", func() bool { return again.count() >= partitions })
	require.NoError(t, m.leave())
	assert.Equal(t, partitions, again.count(), "and nothing else, since it was committed")
}

// A record that cannot be handled is kept elsewhere, or in the way.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.produce(t, 5)
	poison := func(_ context.Context, r *kgo.Record) error {
		switch {
		case r.Partition == 1 && r.Offset == 2:
			return policy.AsPermanent(errors.New("malformed"))
		case r.Partition == 2 && r.Offset == 3:
			panic("boom")
		}
		return nil
	}
	m := c.join(t, nil, kafkaconsume.Config{Config: quick()}, poison)
	err := <-m.done
	dead, ok := errors.AsType[*kafkaconsume.DeadError](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, []string{"1/2", "2/3"}, fmt.Sprintf("%d/%d", dead.Partition, dead.Offset))
	require.NoError(t, m.client.CommitMarkedOffsets(t.Context()))
	m.client.CloseAllowingRebalance()

	var mu sync.Mutex
	buried := map[string]string{}
	m = c.join(t, nil, kafkaconsume.Config{Config: quick(), DeadLetter: func(_ context.Context, r *kgo.Record, why error) error {
		mu.Lock()
		defer mu.Unlock()
		buried[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = why.Error()
		return nil
	}}, poison)
	eventually(t, "all are judged", func() bool { s := m.Snapshot(); return s.Dead == 2 })
	require.NoError(t, m.leave())
	require.Len(t, buried, 2)
	assert.Contains(t, buried["1/2"], "malformed")
	assert.Contains(t, buried["2/3"], "boom")

	failing := errors.New("topic is gone")
	c.produce(t, 1)
	m = c.join(t, nil, kafkaconsume.Config{DeadLetter: func(context.Context, *kgo.Record, error) error { return failing }},
		func(context.Context, *kgo.Record) error { return policy.AsPermanent(errors.New("malformed")) })
	err = <-m.done
	require.ErrorIs(t, err, failing)
	require.ErrorContains(t, err, "malformed")
}

// A member that comes takes partitions over without a record being lost or handled twice.
func TestRebalance(t *testing.T) {
	t.Parallel()
	c := start(t)
	const n = 60
	c.produce(t, n)
	var got seen
	slow := func(ctx context.Context, r *kgo.Record) error {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		got.add(r)
		return nil
	}
	first := c.join(t, nil, kafkaconsume.Config{}, slow)
	eventually(t, "it has begun", func() bool { return first.Snapshot().Acked > 10 })
	second := c.join(t, nil, kafkaconsume.Config{}, slow)
	eventually(t, "all are handled", func() bool { return got.count() >= n*partitions })
	require.NoError(t, first.leave())
	require.NoError(t, second.leave())
	for i, o := range got.order {
		assert.Equal(t, numbers(n), o, "partition %d", i)
	}
}

// Records of one partition wait for each other, those of others do not, up to Workers.
func TestWorkers(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.produce(t, 10)
	var now, most atomic.Int64
	m := c.join(t, nil, kafkaconsume.Config{Config: consume.Config{Workers: 2}}, func(context.Context, *kgo.Record) error {
		n := now.Add(1)
		defer now.Add(-1)
		if n > 1 {
			most.CompareAndSwap(0, n) // the first pair
		}
		if n > 2 {
			t.Error("more than there are workers")
		}
		time.Sleep(2 * time.Millisecond) // as a handler takes its time
		return nil
	})
	eventually(t, "all are handled", func() bool { return m.Snapshot().Acked == 10*partitions })
	require.NoError(t, m.leave())
	require.EqualValues(t, 2, most.Load())
}

func TestClientIsClosed(t *testing.T) {
	t.Parallel()
	c := start(t)
	m := c.join(t, nil, kafkaconsume.Config{}, func(context.Context, *kgo.Record) error { return nil })
	c.produce(t, 1)
	eventually(t, "it works", func() bool { return m.Snapshot().Acked == partitions })
	m.client.CloseAllowingRebalance()
	require.ErrorIs(t, <-m.done, kgo.ErrClientClosed)
}

func TestNewChecksItsConfig(t *testing.T) {
	t.Parallel()
	_, err := kafkaconsume.New(nil, kafkaconsume.Config{Config: consume.Config{Workers: -1}}, nil)
	require.ErrorContains(t, err, "kafkaconsume.handler")
	require.ErrorContains(t, err, "consume.Workers")
}
