// Package stock is a client of an inventory service, there for the sake of its
// tests: docs/howto/test-your-pipeline.md takes them apart.
package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// Client asks the inventory service how much there is.
type Client struct {
	base     string
	http     http.Client
	pipeline *policy.Pipeline
}

// NewClient returns a client of the service at base. A nil transport is
// [http.DefaultTransport].
func NewClient(base string, transport http.RoundTripper) (*Client, error) {
	pipeline, err := policy.New("inventory",
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{MinCalls: 5, OpenFor: 5 * time.Second, SlowAfter: 300 * time.Millisecond},
		retry.Config{MaxAttempts: 3, BaseDelay: 100 * time.Millisecond},
		policy.Timeouts{Total: 2 * time.Second, Attempt: 500 * time.Millisecond},
	)
	if err != nil {
		return nil, err
	}
	return &Client{
		base:     base,
		http:     http.Client{Transport: httpx.Transport(pipeline, transport)},
		pipeline: pipeline,
	}, nil
}

// Pipeline returns the pipeline that guards the service.
func (c *Client) Pipeline() *policy.Pipeline { return c.pipeline }

// Count returns how much of sku is in stock.
func (c *Client) Count(ctx context.Context, sku string) (n int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/stock/"+url.PathEscape(sku), http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // gives the bulkhead's permit back
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("inventory: %s", resp.Status)
	}
	return n, json.NewDecoder(resp.Body).Decode(&n)
}
