package redislimit_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// It is about time too, so it runs alone.
func TestCluster(t *testing.T) {
	servers := redisserver.NewCluster(t)
	config := func(limits ...redislimit.Limit) redislimit.Config {
		return redislimit.Config{Options: &redis.UniversalOptions{Addrs: redisserver.Addrs(servers)}, Limits: limits, Settings: sharedlimit.Settings{
			Nodes: 1, Timeout: 500 * time.Millisecond, StandIn: sharedlimit.Refuse, // so that no error is overlooked
		}}
	}

	// B24 against servers: three limits of a call, many users.
	l := limiter(t, config(
		redislimit.Limit{Name: "user", Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(1000)}, Keyed: true},
		redislimit.Limit{Name: "minute", Rule: redislimit.FixedWindow{Limit: 1000, Window: time.Minute}, Keyed: true},
		redislimit.Limit{Name: "log", Rule: redislimit.SlidingLog{Limit: 1000, Window: time.Minute}, Keyed: true},
	))
	for i := range 300 {
		require.NoError(t, l.Wait(byKey(fmt.Sprintf("u{%d}:%d", i, i)), 1))
	}
	assert.Zero(t, shared(l).Errors)

	// Shards lie on all masters.
	sharded := config(redislimit.Limit{Name: "hot", Rule: redislimit.FixedWindow{Limit: 300, Window: time.Hour}})
	sharded.Shards = 30
	hot, passed := limiter(t, sharded), 0
	for range 600 {
		if allow(hot) {
			passed++
		}
	}
	assert.Equal(t, 300, passed)
	for _, s := range servers[:3] {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		keys, err := c.Keys(t.Context(), "*hot*").Result()
		require.NoError(t, err)
		assert.NotEmpty(t, keys, "no shard on a master")
		require.NoError(t, c.Close())
	}

	// A replica that was promoted does not know the script (B23).
	cc := client(t, redisserver.Addrs(servers)...).(*redis.ClusterClient)
	require.NoError(t, cc.ForEachMaster(t.Context(), flushScripts))
	for i := range 30 {
		require.NoError(t, l.Wait(byKey(strconv.Itoa(i)), 1))
	}
	assert.Zero(t, shared(l).Errors)

	failover(t, servers, config)
}

// failover kills the master that a limit lies on. What its replica had not heard of is let
// through again: at most the burst.
func failover(t *testing.T, servers []*server, config func(...redislimit.Limit) redislimit.Config) {
	t.Helper()
	const rate, burst = 200, 40
	cfg := config(redislimit.Limit{Name: "failover", Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: burst}})
	cfg.Settings.StandIn = sharedlimit.LocalShare
	cfg.Settings.Timeout = timeout
	cfg.Settings.Nodes = 2
	nodes := []*sharedlimit.Limiter{limiter(t, cfg), limiter(t, cfg)}
	var passed, slowest, outages atomic.Int64
	for _, n := range nodes {
		t.Cleanup(n.Subscribe(func(e policy.Event) {
			if e.Kind == policy.EventStateChange && e.Change.To == policy.SharedModeLocal {
				outages.Add(1)
			}
		}))
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	start := time.Now()
	for _, n := range nodes {
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(2 * time.Millisecond):
					}
					before := time.Now()
					if allow(n) {
						passed.Add(1)
					}
					slowest.Store(max(slowest.Load(), int64(time.Since(before))))
				}
			})
		}
	}
	time.Sleep(300 * time.Millisecond)
	owner := ownerOf(t, servers, "*failover*")
	owner.Stop()
	time.Sleep(3 * time.Second)
	eventually(t, 10*time.Second, "shared again", func() bool {
		return shared(nodes[0]).Mode == policy.SharedModeShared && shared(nodes[1]).Mode == policy.SharedModeShared
	})
	time.Sleep(300 * time.Millisecond)
	close(stop)
	wg.Wait()
	took := time.Since(start) // of the last call too
	limit := burst + rate*took.Seconds()
	t.Logf("in %s with a failover %d calls passed, the limit being %.0f; the slowest took %s; %d changes to shares", took, passed.Load(), limit, time.Duration(slowest.Load()), outages.Load())
	// Each node has one outage, unless the machine is too busy to keep the timeout later on.
	shares := burst / float64(len(nodes)) * float64(max(outages.Load(), 2))
	assert.LessOrEqual(t, float64(passed.Load()), limit+shares, "at most a burst more than the limit for each outage")
	for _, n := range nodes {
		errors := shared(n).Errors
		allow(n)
		assert.Equal(t, errors, shared(n).Errors, "works with the new master")
	}
}

// ownerOf returns the master that has a key.
func ownerOf(t *testing.T, servers []*server, pattern string) *server {
	t.Helper()
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		keys, _ := c.Keys(t.Context(), pattern).Result()
		role := c.Do(t.Context(), "role").Val()
		_ = c.Close()
		if r, ok := role.([]any); ok && len(keys) > 0 && r[0] == "master" {
			return s
		}
	}
	require.Fail(t, "no master has the key")
	return nil
}
