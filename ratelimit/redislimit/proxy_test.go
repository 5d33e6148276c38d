package redislimit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

func flushScripts(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() }

// What the network can do to an answer: be late, break the connection, or be away.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", s.Addr)
	require.NoError(t, server.Collection.Add(proxy, true))
	t.Cleanup(proxy.Stop)

	l := limiter(t, redislimit.Config{
		Options:  &redis.UniversalOptions{Addrs: []string{proxy.Listen}},
		Limits:   []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 1000}}},
		Settings: sharedlimit.Settings{Nodes: 1},
	})
	require.True(t, allow(l))

	for _, tt := range []struct {
		name, toxic string
		down        bool
	}{
		{name: "latency", toxic: `{"name":"x","type":"latency","stream":"downstream","attributes":{"latency":400}}`},
		{name: "reset", toxic: `{"name":"x","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`},
		{name: "no answer", toxic: `{"name":"x","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`},
		{name: "down", down: true},
	} {
		require.Equal(t, policy.SharedModeShared, shared(l).Mode)
		if tt.down {
			proxy.Stop()
		} else {
			_, err := proxy.Toxics.AddToxicJson(strings.NewReader(tt.toxic))
			require.NoError(t, err)
		}
		asked := 0
		for ; shared(l).Mode == policy.SharedModeShared; asked++ {
			start := time.Now()
			assert.True(t, allow(l), "the local share has room")
			assert.Less(t, time.Since(start), 50*time.Millisecond+scheduling, tt.name)
			require.Less(t, asked, 20, tt.name)
		}
		trips, asking := shared(l).RoundTrips, time.Now()
		for range 50 {
			allow(l)
		}
		assert.LessOrEqual(t, shared(l).RoundTrips-trips, uint64(time.Since(asking)/(250*time.Millisecond))+1, "%s: calls do not ask any more", tt.name)
		if tt.down {
			require.NoError(t, proxy.Start())
		} else {
			require.NoError(t, proxy.Toxics.RemoveToxic(t.Context(), "x"))
		}
		back := eventually(t, 3*time.Second, tt.name, func() bool { return shared(l).Mode == policy.SharedModeShared })
		t.Logf("%s: %d calls asked before the mode changed; shared again after %s", tt.name, asked, back)
	}
}
