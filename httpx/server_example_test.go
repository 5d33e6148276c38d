package httpx_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// A limit in front of a handler: the first request is served, the second refused.
func ExampleNewServer() {
	inbound, err := policy.New("inbound",
		ratelimit.TokenBucket{Rate: ratelimit.Every(time.Minute), Burst: 1},
		bulkhead.Semaphore{Limit: 200},
	)
	if err != nil {
		panic(err)
	}
	server, err := httpx.NewServer(inbound, httpx.ServerConfig{})
	if err != nil {
		panic(err)
	}
	handler := server.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "an image")
	}))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/captcha", http.NoBody))
		fmt.Println(w.Code, w.Body)
		fmt.Printf("Retry-After %q, RateLimit-Policy %q\n", w.Header().Get("Retry-After"), w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200 an image
	// Retry-After "", RateLimit-Policy ""
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429}
	// Retry-After "60", RateLimit-Policy "\"ratelimit\";q=1;w=60"
}

// A handler that returns its error: what a pipeline below refused, or a problem of its own.
func ExampleHandlerFunc() {
	inventory, err := policy.New("inventory", bulkhead.Semaphore{Limit: 1})
	if err != nil {
		panic(err)
	}
	handler := httpx.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path != "/stock" {
			return &httpx.Problem{Status: http.StatusNotFound, Detail: "There is no " + r.URL.Path + "."}
		}
		stock, err := policy.Do(r.Context(), inventory, func(context.Context) (string, error) { return "42", nil })
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, stock)
		return err
	})
	show := func(path string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, http.NoBody))
		fmt.Println(w.Code, w.Body)
	}

	show("/stock")
	show("/price")
	_ = inventory.Close(context.Background()) // it refuses from now on
	show("/stock")
	// Output:
	// 200 42
	// 404 {"title":"Not Found","status":404,"detail":"There is no /price."}
	// 503 {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}
}

// Behind a load balancer the client is whom that names, and not whom the client names.
func ExampleClientAddr() {
	clients, err := httpx.NewClientAddr(httpx.ClientAddrConfig{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 2001:db8:1:2::3")

	r.RemoteAddr = "10.0.0.7:4711" // the load balancer
	fmt.Println(clients.Key(r))
	r.RemoteAddr = "203.0.113.9:4711" // somebody who has found a way around it
	fmt.Println(clients.Key(r))
	// Output:
	// 2001:db8:1:2::/64
	// 203.0.113.9
}
