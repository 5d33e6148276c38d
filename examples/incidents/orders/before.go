package orders

import (
	"context"
	"time"
)

// before is the order service as it was.
type before struct{ shop *shop }

// region before

// stock asks the inventory, for half a second, and twice more when there is no answer.
func (b *before) stock(ctx context.Context, sku int) (Stock, error) {
	var s Stock
	var err error
	for range 3 {
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		s, err = b.shop.inventory.stock(try, sku)
		cancel()
		if err == nil {
			return s, nil
		}
	}
	return s, err
}

// order runs on one of the threads of the service, as everything does.
func (b *before) order(ctx context.Context, sku int) (degraded bool, err error) {
	if _, err := b.stock(ctx, sku); err != nil {
		return false, err
	}
	return false, b.shop.orders.write(ctx)
}

// gateway stands in front and tries a failed order once more.
func (b *before) gateway(ctx context.Context, sku int) (degraded bool, err error) {
	if degraded, err = b.order(ctx, sku); err != nil {
		return b.order(ctx, sku)
	}
	return degraded, nil
}

// endregion

func (b *before) page(ctx context.Context) error { return b.shop.catalogue.read(ctx) }
