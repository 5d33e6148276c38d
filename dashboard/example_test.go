package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

func ExampleHandler() {
	registry := new(policy.Registry)
	if _, err := registry.New("inventory", breaker.Config{}); err != nil {
		fmt.Println(err)
		return
	}
	board := dashboard.Handler(registry, dashboard.Config{Title: "shop"})
	defer board.Close()
	mux := http.NewServeMux()
	mux.Handle("/breakwater/", board)

	// What the page asks for, a script may ask for too.
	r := httptest.NewRequest(http.MethodGet, "http://localhost/breakwater/api/snapshot", http.NoBody) //nolint:noctx // an example
	r.RemoteAddr = "127.0.0.1:40000"
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var o dashboard.Overview
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o.About.Title, len(o.Cards), o.Cards[0].Name, o.Cards[0].State)
	fmt.Println(o.Answers[0].Question, o.Answers[0].Short)

	// Output:
	// shop 1 inventory closed
	// What is open? Nothing. Every breaker lets all calls through.
}
