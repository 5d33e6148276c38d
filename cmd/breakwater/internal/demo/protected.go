package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// guarded calls each dependency through its pipeline. There is no loop here, and no
// if: the policies are under the client.
type guarded struct {
	clients  [routes]http.Client
	registry *policy.Registry
	changes  *changes
}

// dependencyNames are the names of the pipelines.
var dependencyNames = [routes]string{"inventory", "pricing"}

// newGuarded builds the pipelines. traffic is the number of calls per second that
// each has to carry; common policies, such as a tracer, go to both.
func newGuarded(traffic float64, c *clock, common ...policy.Policy) (*guarded, error) {
	g := &guarded{registry: new(policy.Registry), changes: &changes{clock: c}}
	g.registry.Use(append(common, policy.Observe(g.changes))...)
	inventory, ierr := g.registry.New(dependencyNames[routeStock], append(policies(traffic, stockService, 200*time.Millisecond),
		// The user is better served with the fallback than with an answer that
		// comes later than this.
		policy.Timeouts{Total: 450 * time.Millisecond, Attempt: 300 * time.Millisecond},
		fallback.Func(inStock))...) //nolint:bodyclose // nothing is called here
	pricing, perr := g.registry.New(dependencyNames[routePrice], append(policies(traffic, priceService, 600*time.Millisecond),
		// There is no answer without a price, so a late one is better than none.
		policy.Timeouts{Total: 2 * time.Second, Attempt: time.Second})...)
	if err := errors.Join(ierr, perr); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	g.clients[routeStock].Transport = httpx.Transport(inventory, newTransport())
	g.clients[routePrice].Transport = httpx.Transport(pricing, newTransport())
	return g, nil
}

// policies returns what guards a dependency that is asked traffic times a second,
// takes service while it is well, and is not well when it takes longer than slow.
func policies(traffic float64, service, slow time.Duration) []policy.Policy {
	return []policy.Policy{
		// Retries may add a tenth to the load, and no more.
		retry.Config{
			MaxAttempts: 3, BaseDelay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond,
			Budget: retry.BudgetConfig{Ratio: 0.1, MinPerSecond: 1, Window: 2 * time.Second},
		},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2 * traffic)},
		bulkhead.Semaphore{Limit: permits(traffic, service), MaxWait: service},
		breaker.Config{
			FailureRatio: 0.5, SlowAfter: slow, SlowRatio: 0.5, Window: time.Second, MinCalls: 10,
			OpenFor: 500 * time.Millisecond, Probes: 3,
		},
	}
}

// permits is the number of calls in flight that carries the traffic when each takes
// service (Little's law), with room for ten times as many: a machine that stalls for
// a moment sends what it has missed all at once.
func permits(traffic float64, service time.Duration) int {
	return int(10*traffic*service.Seconds()) + 1
}

// inStock answers when the stock is unknown: an article that is usually there is
// sold, and the order is checked later.
func inStock(context.Context, policy.FailedCall) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}, degradedHeader: {"1"}},
		Body:       io.NopCloser(strings.NewReader(`{"in_stock":true}`)),
	}, nil
}

// call implements caller.
func (g *guarded) call(ctx context.Context, route int, url string, phase int) (answer, error) {
	req, err := newCall(ctx, url, phase)
	if err != nil {
		return answer{}, err
	}
	resp, err := g.clients[route].Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("calling %s: %w", dependencyNames[route], err)
	}
	return read(resp)
}

// close ends the pipelines and the idle connections.
func (g *guarded) close(ctx context.Context) error {
	for i := range g.clients {
		g.clients[i].CloseIdleConnections()
	}
	if err := g.registry.Close(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// breaker returns the state of the breaker in front of the stock dependency.
func (g *guarded) breaker() policy.BreakerSnapshot {
	if p, ok := g.registry.Get(dependencyNames[routeStock]); ok {
		for _, s := range p.Snapshot().Policies {
			if s.Breaker != nil {
				return *s.Breaker
			}
		}
	}
	return policy.BreakerSnapshot{}
}

// changes keeps the transitions of all breakers. It is a [policy.Observer].
type changes struct {
	clock *clock

	mu   sync.Mutex
	list []Transition
}

// OnEvent implements [policy.Observer].
func (c *changes) OnEvent(e policy.Event) {
	if e.Kind != policy.EventStateChange {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, Transition{
		At: round(c.clock.at(e.Time).Seconds()), Dependency: e.Dependency,
		From: e.Change.From, To: e.Change.To, Why: e.Change.Why,
		Ratio: round(e.Change.Ratio), Calls: e.Change.Calls,
	})
}

func (c *changes) all() []Transition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Transition{}, c.list...)
}
