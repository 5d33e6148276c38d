package captcha

import (
	"log/slog"
	"net/http"

	"github.com/breakwater-go/breakwater/policy"
)

// Config is breakwater.yaml.
func Config() []byte { return afterYAML }

// Before is the endpoint as it was, for who wants it on real time. It has a goroutine until
// stop is called.
func Before(s *Store) (h http.Handler, stop func()) {
	b := newBefore(s)
	return b, b.stop
}

// After is the endpoint behind a pipeline.
func After(s *Store, p *policy.Pipeline, logger *slog.Logger) http.Handler {
	return newAfter(s, p, logger)
}
