package orders

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// Stock is what the inventory says of an article.
type Stock struct{ InStock bool }

// dependency answers after a while.
type dependency struct {
	latency func() time.Duration
	calls   *replay.Log // that reached it
	took    *replay.Log // what became of them
	over    func(context.Context) error
}

func newDependency(w *replay.World, latency func() time.Duration) *dependency {
	d := &dependency{latency: latency, calls: replay.NewLog(), took: replay.NewLog()}
	d.over = w.Remote(d.answer)
	return d
}

func steady() time.Duration { return 20 * time.Millisecond }

func dead() time.Duration { return 10 * time.Second }

func (d *dependency) call(ctx context.Context) error { return d.over(ctx) }

func (d *dependency) answer(ctx context.Context) error {
	arrived := time.Now()
	d.calls.Add(replay.Served, arrived)
	err := replay.Sleep(ctx, d.latency())
	if err != nil {
		d.took.Add(replay.Failed, arrived)
		// Its caller has left before it notices, and not at the same instant.
		time.Sleep(time.Microsecond)
		return err
	}
	d.took.Add(replay.Served, arrived)
	return nil
}

func (d *dependency) stock(ctx context.Context, _ int) (Stock, error) {
	return Stock{InStock: true}, d.call(ctx)
}

func (d *dependency) write(ctx context.Context) error { return d.call(ctx) }
func (d *dependency) read(ctx context.Context) error  { return d.call(ctx) }

// shop is what the order service depends on.
type shop struct{ inventory, orders, catalogue *dependency }

func newShop(w *replay.World, inventory func() time.Duration) *shop {
	return &shop{newDependency(w, inventory), newDependency(w, steady), newDependency(w, steady)}
}

// service is the order service, whatever it is made of.
type service interface {
	order(ctx context.Context, sku int) (degraded bool, err error)
	page(ctx context.Context) error
}

// site serves the orders and the pages of the catalogue. It has 200 threads, and more when
// those are busy, 800 in the incident; whoever finds none is refused.
type site struct {
	service service
	threads *replay.Server
	orders  *replay.Log
	pages   *replay.Log
}

func newSite(s service, threads int) *site {
	return &site{service: s, threads: replay.NewServer(threads, 0), orders: replay.NewLog(), pages: replay.NewLog()}
}

// user orders something, and once more 2 s after that has not worked.
func (s *site) user(sku int) {
	if !s.buy(sku) {
		time.Sleep(2 * time.Second)
		s.buy(sku)
	}
}

func (s *site) buy(sku int) bool {
	arrived, what := time.Now(), replay.Refused
	s.threads.Serve(func() {
		degraded, err := s.service.order(context.Background(), sku)
		switch {
		case err != nil:
			what = replay.Failed
		case degraded:
			what = replay.Degraded
		default:
			what = replay.Served
		}
	})
	s.orders.Add(what, arrived)
	return what == replay.Served || what == replay.Degraded
}

// look opens a page of the catalogue.
func (s *site) look() {
	arrived, what := time.Now(), replay.Refused
	s.threads.Serve(func() {
		what = replay.Served
		if s.service.page(context.Background()) != nil {
			what = replay.Failed
		}
	})
	s.pages.Add(what, arrived)
}
