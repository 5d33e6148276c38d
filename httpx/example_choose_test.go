package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
)

// A server that stops in the middle of its answer holds neither the caller nor a permit.
func ExampleBodyTimeoutError() {
	server := memhttp.NewServer(lines(1, true)) // stands for one that has hung
	defer server.Close()
	feed, err := policy.New("feed", bulkhead.Semaphore{}, breaker.Config{}, policy.Timeouts{Attempt: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := httpx.Config{BodyIdleTimeout: 10 * time.Millisecond}.Transport(feed, server.Transport())
	if err != nil {
		fmt.Println(err)
		return
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL(), http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if late, ok := errors.AsType[*httpx.BodyTimeoutError](err); ok {
		fmt.Println(late.Field, late.After)
	}
	fmt.Println(err)
	// Output:
	// BodyIdleTimeout 10ms
	// httpx: feed: no byte of the response body came for 10ms (BodyIdleTimeout)
}

// fetch prints what comes of a request.
func fetch(client *http.Client, method, url string) {
	req, err := http.NewRequestWithContext(context.Background(), method, url, http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println(method, url, "not asked:", re.Dependency, re.Reason)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(method, url, resp.StatusCode)
}

// A client that calls webhooks, whoever's they are: each host has a breaker of its own.
func ExampleHosts() {
	var reg policy.Registry
	hosts, err := httpx.NewHosts(&reg, httpx.HostsConfig{
		Policies: []policy.Policy{breaker.Config{MinCalls: 2}},
		MaxHosts: 1000,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := httpx.Config{Choose: hosts}.Transport(nil, byHost) // stands for a network where some are ill
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	for _, host := range []string{"ill.test", "ill.test", "ill.test", "well.test"} {
		fetch(client, http.MethodPost, "http://"+host+"/hook")
	}
	fmt.Println(hosts.Snapshot().Own, "hosts")
	// Output:
	// POST http://ill.test/hook 503
	// POST http://ill.test/hook 503
	// POST http://ill.test/hook not asked: host:ill.test open
	// POST http://well.test/hook 200
	// 2 hosts
}

// One service, two kinds of work: the reports, which take long, do not use up what the
// orders need.
func ExampleRoutes() {
	var reg policy.Registry
	for _, name := range []string{"orders", "reports"} {
		if _, err := reg.New(name, breaker.Config{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	routes, err := httpx.NewRoutes(&reg, map[string]string{
		"shop.test/orders/":            "orders",
		"GET shop.test/reports/{year}": "reports",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := httpx.Config{Choose: routes}.Transport(nil, byHost)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	fetch(client, http.MethodGet, "http://shop.test/orders/17")
	fetch(client, http.MethodGet, "http://shop.test/reports/2026")
	fetch(client, http.MethodGet, "http://shop.test/reports/2025")
	for p := range reg.All() {
		fmt.Println(p.Name(), p.Snapshot().Calls[policy.Success])
	}
	// Output:
	// GET http://shop.test/orders/17 200
	// GET http://shop.test/reports/2026 200
	// GET http://shop.test/reports/2025 200
	// orders 1
	// reports 2
}
