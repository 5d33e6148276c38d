package redislimit_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// startSentinel starts a sentinel that watches a master by the name of main, and decides by
// itself.
func startSentinel(t *testing.T, master *server) *server {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf") // a sentinel rewrites it
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
sentinel monitor main %s %s 1
sentinel down-after-milliseconds main 500
sentinel failover-timeout main 3000
`, host, port), 0o600))
	return redisserver.WithFile(t, conf, "--sentinel")
}

// startReplicated starts a master with a replica, and a sentinel that knows both.
func startReplicated(t *testing.T) (servers []*server, sentinel *server) {
	t.Helper()
	master := startRedis(t, "--repl-diskless-sync-delay", "0")
	_, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	replica := startRedis(t, "--replicaof", "127.0.0.1 "+port, "--repl-diskless-sync-delay", "0")
	c := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer c.Close()
	eventually(t, 20*time.Second, "the replica follows", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel = startSentinel(t, master)
	s := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer s.Close()
	eventually(t, 20*time.Second, "the sentinel knows the replica", func() bool {
		known, err := s.Replicas(t.Context(), "main").Result()
		return err == nil && len(known) == 1 && known[0]["flags"] == "slave" && known[0]["master-link-status"] == "ok"
	})
	return []*server{master, replica}, sentinel
}

// It is about time too, so it runs alone.
func TestSentinel(t *testing.T) {
	servers, sentinel := startReplicated(t)
	options := &redis.UniversalOptions{Addrs: []string{sentinel.Addr}, MasterName: "main"}

	// Two limits of two processes, with the client of the limit and with one's own.
	shareOne := func(cfg redislimit.Config) int {
		cfg.Limits = []redislimit.Limit{{Rule: redislimit.FixedWindow{Limit: 10, Window: time.Hour}}}
		cfg.Settings = sharedlimit.Settings{Nodes: 2, Timeout: 10 * time.Second, StandIn: sharedlimit.Refuse}
		l, passed := limiter(t, cfg), 0
		for range 7 {
			if allow(l) {
				passed++
			}
		}
		assert.Zero(t, shared(l).Errors)
		return passed
	}
	own := redislimit.NewClient(options)
	t.Cleanup(func() { _ = own.Close() })
	assert.Equal(t, 7, shareOne(redislimit.Config{Options: options}))
	assert.Equal(t, 3, shareOne(redislimit.Config{Client: own}))

	failover(t, servers, func(limits ...redislimit.Limit) redislimit.Config {
		return redislimit.Config{Options: options, Limits: limits}
	})

	// A client that the caller gave finds the new master, too.
	l := limiter(t, redislimit.Config{Client: own, Name: "after", Limits: []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(1000)}}}})
	eventually(t, 10*time.Second, "asks the new master", func() bool {
		before := shared(l).Errors
		return allow(l) && shared(l).Errors == before && shared(l).Mode == policy.SharedModeShared
	})
	c := redis.NewClient(&redis.Options{Addr: servers[1].Addr})
	t.Cleanup(func() { _ = c.Close() })
	keys, err := c.Keys(t.Context(), "*after*").Result()
	require.NoError(t, err)
	assert.NotEmpty(t, keys)
}
