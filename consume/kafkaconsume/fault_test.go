package kafkaconsume_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/consume/kafkaconsume"
	"github.com/breakwater-go/breakwater/policy"
)

// A client can be consumed with again: the next Run begins where the last one stopped, so no
// record is passed over.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	c := start(t)
	const n = 20
	c.produce(t, n)
	var got seen
	failing := true
	m := c.join(t, nil, kafkaconsume.Config{Config: consume.Config{Workers: 1}}, func(_ context.Context, r *kgo.Record) error {
		if failing && r.Partition == 1 && r.Offset == 7 {
			return policy.AsPermanent(errors.New("malformed"))
		}
		got.add(r)
		return nil
	})
	_, ok := errors.AsType[*kafkaconsume.DeadError](<-m.done)
	require.True(t, ok)
	assert.Empty(t, m.client.PauseFetchPartitions(nil), "nothing stays paused")

	failing = false
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { m.done <- m.Run(ctx, m.client) }()
	eventually(t, "all are handled", func() bool { return got.count() >= n*partitions })
	cancel()
	require.NoError(t, <-m.done)
	for i, o := range got.order {
		assert.Equal(t, numbers(n), o, "partition %d", i)
	}
}

// Dead letters that cannot be kept do not keep the consumer from stopping.
func TestDeadLetterHangs(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.produce(t, 1)
	began := make(chan struct{}, partitions)
	m := c.join(t, nil, kafkaconsume.Config{
		Config: consume.Config{Shutdown: 50 * time.Millisecond},
		DeadLetter: func(ctx context.Context, _ *kgo.Record, _ error) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		},
	}, func(context.Context, *kgo.Record) error { return policy.AsPermanent(errors.New("malformed")) })
	<-began
	m.cancel()
	select {
	case err := <-m.done:
		require.NoError(t, err, "the record comes again")
	case <-time.After(30 * time.Second):
		require.Fail(t, "it does not stop")
	}
}

// A record of which MaxHold ends between two attempts has those that it had.
func TestAttemptsOutliveMaxHold(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.produce(t, 1)
	m := c.join(t, nil, kafkaconsume.Config{
		Config:     consume.Config{MaxAttempts: 3, BaseDelay: time.Hour, MaxDelay: time.Hour, MaxHold: time.Millisecond},
		DeadLetter: func(context.Context, *kgo.Record, error) error { return nil },
	}, func(context.Context, *kgo.Record) error { return errors.New("boom") })
	eventually(t, "all are dead", func() bool { return m.Snapshot().Dead == partitions })
	require.NoError(t, m.leave())
}
