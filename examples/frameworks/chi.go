package frameworks

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/breakwater-go/breakwater/httpx"
)

// region chi

// Chi is a router with a limit over all routes, and one more for a route. The middleware is
// chi's own kind; show may return an error.
func Chi(all, images *httpx.Server, show httpx.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	r.Use(all.Handler)
	r.Method(http.MethodGet, "/orders/{id}", show)
	r.With(images.Handler).Method(http.MethodGet, "/captcha/{id}", show)
	return r
}

// endregion
