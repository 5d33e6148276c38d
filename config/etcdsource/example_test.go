package etcdsource_test

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/etcdsource"
)

// one is an etcd with one key, so that the example needs no server.
type one struct {
	clientv3.KV

	key, value string
}

func (kv one) Get(_ context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp := new(clientv3.GetResponse)
	if key == kv.key {
		resp.Kvs = []*mvccpb.KeyValue{{Key: []byte(key), Value: []byte(kv.value)}}
	}
	return resp, nil
}

// The settings of two dependencies, from a key of etcd.
func Example() {
	client := clientv3.NewCtxClient(context.Background()) // yours comes from clientv3.New
	client.KV = one{key: "/breakwater.yaml", value: `
dependencies:
  inventory:
    policies:
      - timeout: {Attempt: 500ms}
      - breaker: {OpenFor: 3s}
  vendor:
    policies:
      - ratelimit: {Rate: 10/s}
`}
	settings, err := config.Load(context.Background(), etcdsource.New(client, "/breakwater.yaml"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range settings.Dependencies {
		for _, p := range d.Policies {
			for _, v := range p.Values {
				fmt.Printf("%s.%s.%s: %s (%s)\n", d.Name, p.Name, v.Path, v.Text, v.Origin)
			}
		}
	}
	// Output:
	// inventory.timeout.Attempt: 500ms (etcd /breakwater.yaml:5:28)
	// inventory.breaker.OpenFor: 3s (etcd /breakwater.yaml:6:28)
	// vendor.ratelimit.Rate: 10/s (etcd /breakwater.yaml:9:27)
}
