package orders

import (
	"context"
	_ "embed"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

//go:embed breakwater.yaml
var afterYAML []byte

// region after

// after is the order service with a pipeline for each dependency, as breakwater.yaml sets
// them up.
type after struct {
	shop              *shop
	inventory         *policy.Typed[Stock]
	orders, catalogue *policy.Pipeline
}

func newAfter(s *shop, pipelines map[string]*policy.Pipeline) *after {
	return &after{
		shop: s,
		// Who cannot be told says "in stock": a cancelled order is cheaper than a lost one.
		inventory: policy.For(pipelines["inventory"], fallback.Value(Stock{InStock: true})),
		orders:    pipelines["orders"],
		catalogue: pipelines["catalogue"],
	}
}

func (a *after) order(ctx context.Context, sku int) (degraded bool, err error) {
	answer, err := a.inventory.DoResult(ctx, func(ctx context.Context) (Stock, error) {
		return a.shop.inventory.stock(ctx, sku)
	})
	if err != nil {
		return false, err
	}
	return answer.Degraded, policy.Run(ctx, a.orders, a.shop.orders.write)
}

func (a *after) page(ctx context.Context) error {
	return policy.Run(ctx, a.catalogue, a.shop.catalogue.read)
}

// endregion
