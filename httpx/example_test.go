package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// A client whose requests go through a pipeline. The server is away at first.
func Example() {
	answers := statuses(503, 200)
	server := memhttp.NewServer(answers) // stands for a service somewhere else
	defer server.Close()

	inventory, err := policy.New("inventory",
		policy.Timeouts{Total: 2 * time.Second, Attempt: time.Second},
		retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond},
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{FailureRatio: 0.5},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: httpx.Transport(inventory, server.Transport())}

	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL()+"/stock/apple", http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if gave, ok := errors.AsType[*policy.GaveUpError](err); ok {
		fmt.Println("failed, and not asked again:", gave.Stop)
		return
	}
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println("not asked:", re.Reason, re.RetryAfter.Round(time.Millisecond))
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close() // gives the bulkhead's permit back
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	fmt.Println(inventory.Snapshot().Retries, "retry")
	// Output:
	// 200 OK <nil>
	// 1 retry
}

// Which requests may be sent twice is something that only their author knows.
func ExampleConfig() {
	orders, err := policy.New("orders", retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	next, sent := script(503)
	rt, err := httpx.Config{
		Idempotent: func(req *http.Request) bool {
			return httpx.IsIdempotent(req) || strings.HasPrefix(req.URL.Path, "/search")
		},
		OnAbandoned: func(b httpx.AbandonedBody) { fmt.Println("somebody forgot to close", b.Method, b.Host) },
	}.Transport(orders, next)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	for _, path := range []string{"/orders", "/search"} {
		before := sent.Load()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://orders.test"+path, strings.NewReader("apples"))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println("POST", path, resp.StatusCode, "sent", sent.Load()-before, "times")
	}
	// Output:
	// POST /orders 503 sent 1 times
	// POST /search 503 sent 3 times
}

// A 404 of this service says that its data is not there yet.
func ExampleConfig_classify() {
	catalogue, err := policy.New("catalogue", retry.Config{MaxAttempts: 2, BaseDelay: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	next, sent := script(404, 200)
	rt, err := httpx.Config{
		Classify: func(_ *http.Request, resp *http.Response, _ error) policy.Kind {
			if resp != nil && resp.StatusCode == http.StatusNotFound {
				return policy.Failure
			}
			return policy.NotRun // the default
		},
	}.Transport(catalogue, next)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://catalogue.test", http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", sent.Load(), "attempts")
	// Output: 200 after 2 attempts
}

// A fallback answers with a response, made anew each time since its body is read.
func ExampleTransport_fallback() {
	prices, err := policy.New("prices",
		fallback.Func(func(context.Context, policy.FailedCall) (*http.Response, error) { //nolint:bodyclose // whoever asked closes it
			return &http.Response{
				StatusCode: http.StatusOK,
				Body:       io.NopCloser(strings.NewReader("yesterday's price")),
			}, nil
		}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	down := tripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	client := &http.Client{Transport: httpx.Transport(prices, down)}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://prices.test", http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	// Output: 200 yesterday's price
}

// Two services of ours. The one below fails, after three attempts of its own, and says so;
// the one above does not try again.
func ExampleHop() {
	trust := func(*http.Request) bool { return true } // all are ours in this example
	calls := 0
	stock, err := policy.New("stock", retry.Config{MaxAttempts: 3, BaseDelay: retry.Off})
	if err != nil {
		fmt.Println(err)
		return
	}
	below := memhttp.NewServer(httpx.Hop{Trust: trust}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := policy.Run(r.Context(), stock, func(context.Context) error {
			calls++
			return errors.New("no connection")
		})
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})))
	defer below.Close()

	orders, err := policy.New("orders", retry.Config{MaxAttempts: 3, BaseDelay: retry.Off})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := httpx.Config{Internal: true}.Transport(orders, below.Transport())
	if err != nil {
		fmt.Println(err)
		return
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, below.URL(), http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", calls, "calls; pushback", resp.Header.Get(hop.PushbackHeader))
	// Output: 503 after 3 calls; pushback -1
}

func ExampleTrustNetworks() {
	trust := httpx.TrustNetworks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for _, addr := range []string{"10.1.2.3:40000", "192.0.2.1:40000"} {
		fmt.Println(addr, trust(&http.Request{RemoteAddr: addr}))
	}
	// Output:
	// 10.1.2.3:40000 true
	// 192.0.2.1:40000 false
}
