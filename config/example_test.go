package config_test

import (
	"context"
	"fmt"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

func ExampleLoad() {
	source := config.Bytes("breakwater.yaml", config.LayerFile, []byte(`
dependencies:
  inventory:
    like: standard-http
    policies:
      - ratelimit: {Rate: 6000/s, Burst: 100}
      - breaker: {OpenFor: 5s}
`))
	flags := config.Flags("inventory.breaker.OpenFor=3s") // from the command line
	settings, err := config.Load(context.Background(), source, flags)
	if err != nil {
		fmt.Println(err)
		return
	}
	var registry policy.Registry
	for _, d := range settings.Dependencies {
		if _, err := registry.New(d.Name, d.Specs()...); err != nil {
			fmt.Println(err)
			return
		}
		for _, p := range d.Policies {
			for _, v := range p.Values {
				if v.Origin.Layer > config.LayerBuiltIn {
					fmt.Printf("%s.%s.%s: %s (%s: %s)\n", d.Name, p.Name, v.Path, v.Text, v.Origin.Layer, v.Origin)
				}
			}
		}
	}
	// Output:
	// inventory.breaker.OpenFor: 3s (flags: flag inventory.breaker.OpenFor)
	// inventory.ratelimit.Burst: 100 (file: breakwater.yaml:6:42)
	// inventory.ratelimit.Rate: 6000/s (file: breakwater.yaml:6:27)
}

func ExampleLoad_faults() {
	_, err := config.Load(context.Background(), config.Bytes("breakwater.yaml", config.LayerFile, []byte(`
dependencies:
  inventory:
    policies:
      - breaker: {OpenFro: 5s, Window: 10}
      - bulkhaed: {Limit: 20}
`)))
	fmt.Println(err)
	// Output:
	// breakwater.yaml:5:19: inventory.breaker.OpenFro: there is no setting "OpenFro": did you mean "OpenFor"?
	// breakwater.yaml:5:40: inventory.breaker.Window: 10: want a duration with a unit, such as 500ms, 10s or 1m30s
	// breakwater.yaml:6:9: inventory: there is no kind of policy "bulkhaed": did you mean "bulkhead"?
}
