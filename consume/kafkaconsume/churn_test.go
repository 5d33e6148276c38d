package kafkaconsume_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/consume/kafkaconsume"
)

// Members come and go while handlers work on, whatever their context says. Partitions go to
// and fro, and no record is lost, handled twice or out of its order.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c := start(t)
	const n = 150
	c.produce(t, n)
	var got seen
	stubborn := func(_ context.Context, r *kgo.Record) error {
		time.Sleep(3 * time.Millisecond)
		got.add(r)
		return nil
	}
	first := c.join(t, nil, kafkaconsume.Config{}, stubborn)
	eventually(t, "it has begun", func() bool { return first.Snapshot().Acked > 0 })
	for i := range 3 {
		m := c.join(t, nil, kafkaconsume.Config{}, stubborn)
		eventually(t, "it has got a partition", func() bool { return m.Snapshot().Acked > 0 || got.count() >= n*partitions })
		if i%2 == 0 {
			require.NoError(t, m.leave())
		} else {
			require.NoError(t, first.leave())
			first = m
		}
	}
	eventually(t, "all are handled", func() bool { return got.count() >= n*partitions })
	require.NoError(t, first.leave())
	for i, o := range got.order {
		assert.Equal(t, numbers(n), o, "partition %d", i)
	}
}
