package redisx_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
)

func clusterOptions(servers []*redisserver.Server) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: redisserver.Addrs(servers[:3]), DialerRetries: 1, ContextTimeoutEnabled: true, MaxRedirects: 3}
}

// It starts six servers, so it runs alone.
func TestCluster(t *testing.T) {
	servers := redisserver.NewCluster(t)
	t.Run("as a whole", func(t *testing.T) {
		c := redis.NewClusterClient(clusterOptions(servers))
		defer c.Close()
		p := pipeline(t)
		_, err := redisx.Guard(c, p, redisx.Config{})
		require.NoError(t, err)
		useCluster(t, c)
		assert.Zero(t, figuresOf(p).failures)
		assert.Equal(t, uint64(62), figuresOf(p).calls, "a command is one call, whatever the redirects")
	})

	t.Run("node by node", func(t *testing.T) {
		c := redis.NewClusterClient(clusterOptions(servers))
		defer c.Close()
		var mu sync.Mutex
		nodes := map[string]*policy.Pipeline{}
		c.OnNewNode(func(n *redis.Client) {
			p, err := policy.New(n.Options().Addr, breaker.Config{ConsecutiveFailures: 3, Window: time.Hour, OpenFor: time.Hour})
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			nodes[n.Options().Addr] = p
			n.AddHook(redisx.New(p, redisx.Config{}))
		})
		useCluster(t, c)

		// A node that is asked for what another one has answers MOVED: it is healthy, and
		// the client follows.
		require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error {
			for i := range 10 {
				_ = n.Get(ctx, "k"+strconv.Itoa(i)).Err()
			}
			return nil
		}))
		mu.Lock()
		moved := uint64(0)
		for addr, p := range nodes {
			moved += kinds(p)[policy.Permanent]
			assert.Zero(t, figuresOf(p).failures, addr)
		}
		mu.Unlock()
		assert.Equal(t, uint64(20), moved)

		// One breaker opens, and the others do not hear of it.
		owner := ownerOf(t, c, "k1")
		mu.Lock()
		down := nodes[owner]
		mu.Unlock()
		for _, ctl := range down.Controls() {
			ctl.Commander.ForceOpen("test", 0)
		}
		require.ErrorIs(t, c.Get(t.Context(), "k1").Err(), policy.ErrRejected)
		others := 0
		for i := range 10 {
			key := "k" + strconv.Itoa(i)
			if ownerOf(t, c, key) != owner {
				require.NoError(t, c.Get(t.Context(), key).Err())
				others++
			}
		}
		assert.Positive(t, others)
	})
}

// useCluster makes 62 calls all over a cluster.
func useCluster(t *testing.T, c *redis.ClusterClient) {
	t.Helper()
	ctx := t.Context()
	for i := range 30 {
		key := fmt.Sprint("k", i)
		require.NoError(t, c.Set(ctx, key, key, 0).Err())
		require.Equal(t, key, c.Get(ctx, key).Val())
	}
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range 10 {
			pipe.Get(ctx, fmt.Sprint("k", i))
		}
		return nil
	})
	require.NoError(t, err)
	for i, cmd := range cmds {
		require.Equal(t, fmt.Sprint("k", i), cmd.(*redis.StringCmd).Val())
	}
	_, err = c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{tx}a", 1, 0)
		pipe.Set(ctx, "{tx}b", 1, 0)
		return nil
	})
	require.NoError(t, err)
}

func ownerOf(t *testing.T, c *redis.ClusterClient, key string) string {
	t.Helper()
	n, err := c.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(n.Options().Addr)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", port)
}

func TestRing(t *testing.T) {
	t.Parallel()
	a, b := redisserver.New(t), redisserver.New(t)
	c := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": a.Addr, "b": b.Addr}, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	p := pipeline(t)
	_, err := redisx.Guard(c, p, redisx.Config{})
	require.NoError(t, err)
	for i := range 20 {
		key := fmt.Sprint("k", i)
		require.NoError(t, c.Set(t.Context(), key, key, 0).Err())
		require.Equal(t, key, c.Get(t.Context(), key).Val())
	}
	assert.Equal(t, figures{calls: 40}, figuresOf(p))
}
