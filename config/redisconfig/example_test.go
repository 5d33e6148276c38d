package redisconfig_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/redisconfig"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
)

// The file has the limit, and the program the client.
func Example() {
	client := redislimit.NewClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
	defer client.Close()
	program := &config.Program{Kinds: []config.Kind{
		redisconfig.Kind(map[string]redis.UniversalClient{"limits": client}),
	}}
	settings, err := config.Load(context.Background(), program, config.Bytes("breakwater.yaml", config.LayerFile, []byte(`
dependencies:
  inventory:
    policies:
      - redis:
          Client: limits
          Limits: [{Rate: 6000/s, Burst: 600}]
          Settings: {Timeout: 20ms, Nodes: 4}
`)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range settings.Dependencies {
		p, err := policy.New(d.Name, d.Specs()...)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(p.Snapshot().Policies[0].Name, p.Snapshot().Policies[0].Limiter.Rate)
		_ = p.Close(context.Background())
	}
	// Output: redis 6000
}
