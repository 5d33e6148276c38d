package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// newInventory returns the inventory service: the dependency. POST /break makes it
// answer every question with an error, POST /mend makes it well again.
func newInventory() http.Handler {
	var broken atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("POST /break", func(http.ResponseWriter, *http.Request) { broken.Store(true) })
	mux.HandleFunc("POST /mend", func(http.ResponseWriter, *http.Request) { broken.Store(false) })
	mux.HandleFunc("GET /stock/{sku}", func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "the database is away", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "42 of %s\n", r.PathValue("sku"))
	})
	return mux
}
