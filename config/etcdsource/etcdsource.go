// Package etcdsource reads the configuration of package config from a key of etcd, and
// notices when it changes:
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	…
//	m, err := config.NewManager(ctx, config.ManagerConfig{
//		Registry: &registry,
//		Sources:  []config.Source{etcdsource.New(client, "/breakwater.yaml")},
//	})
//
// The value of the key is the file, in YAML. It is a module of its own, since the client of
// etcd brings much with it.
package etcdsource

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/breakwater-go/breakwater/config"
)

// Source is a key of etcd that holds a configuration. It is a [config.Watchable], safe for
// concurrent use.
type Source struct {
	client *clientv3.Client
	key    string
}

// New returns the source of a key. The client stays the caller's to close.
func New(client *clientv3.Client, key string) *Source { return &Source{client, key} }

// Layer implements [config.Source].
func (*Source) Layer() config.Layer { return config.LayerFile }

// Read implements [config.Source]. A key that is not there is an error.
func (s *Source) Read(ctx context.Context) (config.Content, error) {
	resp, err := s.client.Get(ctx, s.key)
	if err != nil {
		return config.Content{}, fmt.Errorf("etcdsource: %s: %w", s.key, err)
	}
	if len(resp.Kvs) == 0 {
		return config.Content{}, fmt.Errorf("etcdsource: %s: there is no such key", s.key)
	}
	return config.Content{Name: "etcd " + s.key, YAML: resp.Kvs[0].Value}, nil
}

// pause is the time between two attempts to watch.
const pause = time.Second

// Watch implements [config.Watchable]. When etcd is away it tries again until ctx ends, and
// what has changed meanwhile is noticed. It calls changed when it has begun, since the key
// may have changed between its reading and that.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	var seen int64 // the latest revision of the key that was told of
	for ctx.Err() == nil {
		s.listen(ctx, &seen, changed)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// listen follows the key until etcd ends that.
func (s *Source) listen(ctx context.Context, seen *int64, changed func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := s.client.Watch(ctx, s.key)
	resp, err := s.client.Get(ctx, s.key) // what happened before it listened
	if err == nil && len(resp.Kvs) > 0 && resp.Kvs[0].ModRevision > *seen {
		*seen = resp.Kvs[0].ModRevision
		changed()
	}
	for batch := range events {
		if batch.Err() != nil {
			return
		}
		for _, e := range batch.Events {
			if e.Kv.ModRevision > *seen {
				*seen = e.Kv.ModRevision
				if e.Type == clientv3.EventTypePut { // a key that is taken away changes nothing
					changed()
				}
			}
		}
	}
}
