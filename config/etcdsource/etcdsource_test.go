package etcdsource_test

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/etcdsource"
	"github.com/breakwater-go/breakwater/policy"
)

// start starts a server of etcd in this process, on free ports of loopback.
func start(t *testing.T) *clientv3.Client {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = free, free
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = free, free
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		require.FailNow(t, "etcd did not start")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestManagerFollowsEtcd(t *testing.T) {
	t.Parallel()
	client := start(t)
	const key = "/breakwater.yaml"
	put := func(text string) {
		_, err := client.Put(t.Context(), key, text)
		require.NoError(t, err)
	}
	var reg policy.Registry
	events := make(chan policy.Event, 100)
	reg.Use(policy.Observe(policy.ObserverFunc(func(e policy.Event) {
		if e.Kind == policy.EventConfig {
			events <- e
		}
	})))
	cfg := config.ManagerConfig{Registry: &reg, Sources: []config.Source{etcdsource.New(client, key)}, Debounce: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	_, err := config.NewManager(t.Context(), cfg)
	require.ErrorContains(t, err, "there is no such key")
	<-events
	put("dependencies: {a: {policies: [bulkhead: {Limit: 1}]}}")
	m, err := config.NewManager(t.Context(), cfg)
	require.NoError(t, err)
	defer m.Close()
	<-events
	assert.Equal(t, "etcd /breakwater.yaml:1:", m.Settings().Dependencies[0].Policies[0].Values[0].Origin.String()[:24])
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- m.Watch(ctx) }()
	limit := func() int {
		p, _ := reg.Get("a")
		return p.Snapshot().Policies[0].Bulkhead.Limit
	}
	put("dependencies: {a: {policies: [bulkhead: {Limit: 2}]}}")
	for limit() != 2 {
		<-events
	}
	put("nonsense: 1")
	for e := range events {
		if e.Err != nil {
			require.ErrorContains(t, e.Err, "etcd /breakwater.yaml:1:1")
			break
		}
	}
	assert.Equal(t, 2, limit())
	_, err = client.Delete(t.Context(), key) // changes nothing
	require.NoError(t, err)
	put("dependencies: {a: {policies: [bulkhead: {Limit: 3}]}}")
	for limit() != 3 { // a reload may have met the time in which there was no key
		<-events // the test's own deadline bounds it
	}
	cancel()
	require.NoError(t, <-watched)
}
