// Command first-pipeline is where docs/tutorial/first-pipeline.md ends: a shop that
// asks an inventory service through a pipeline and shows the pipeline's metrics.
package main

import (
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func main() {
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:8081", newInventory())) }()
	shop, err := newShop("http://127.0.0.1:8081")
	if err != nil {
		log.Fatal(err)
	}
	log.Println("shop on http://127.0.0.1:8080, inventory on http://127.0.0.1:8081")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", shop))
}

func newShop(inventoryURL string) (http.Handler, error) {
	// region metrics
	var registry policy.Registry
	collector, err := otelx.NewCollector(&registry, otelx.CollectorConfig{})
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collector)
	// endregion

	// region pipeline
	inventory, err := registry.New("inventory",
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{MinCalls: 5, OpenFor: 10 * time.Second},
		retry.Config{MaxAttempts: 3},
		policy.Timeouts{Total: 2 * time.Second, Attempt: 500 * time.Millisecond},
	)
	if err != nil {
		return nil, err
	}
	for _, w := range inventory.Warnings() {
		log.Println("inventory:", w)
	}
	client := &http.Client{Transport: httpx.Transport(inventory, nil)}
	// endregion

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /stock/{sku}", func(w http.ResponseWriter, r *http.Request) {
		ask(w, r, client, inventoryURL)
	})
	return mux, nil
}

// region ask

// ask answers with what the inventory service says.
func ask(w http.ResponseWriter, r *http.Request, client *http.Client, inventoryURL string) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, inventoryURL+r.URL.Path, http.NoBody)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := client.Do(req)
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		if s, ok := re.RetryAfterSeconds(); ok {
			w.Header().Set("Retry-After", strconv.Itoa(s))
		}
		http.Error(w, "refused: "+re.Reason.String(), http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close() // gives the bulkhead's permit back
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// endregion
