package captcha

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/breakwater-go/breakwater/policy"
)

//go:embed breakwater.yaml
var afterYAML []byte

//go:embed before.yaml
var beforeYAML []byte

// region after

// after is the endpoint behind a pipeline, as breakwater.yaml sets it up: who finds no
// token is told so at once, with a status that everybody understands.
type after struct {
	store    *Store
	pipeline *policy.Pipeline
}

func newAfter(s *Store, p *policy.Pipeline, logger *slog.Logger) *after {
	for _, limit := range p.Snapshot().Policies {
		if l := limit.Limiter; l != nil {
			logger.Info("captcha is limited", "rate", fmt.Sprintf("%g/s", l.Rate), "burst", l.Burst)
		}
	}
	return &after{store: s, pipeline: p}
}

func (a *after) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	picture, err := policy.Do(r.Context(), a.pipeline, func(ctx context.Context) ([]byte, error) {
		return a.store.captcha(ctx)
	})
	if err == nil {
		_, _ = w.Write(picture)
		return
	}
	status := http.StatusServiceUnavailable
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		status = http.StatusTooManyRequests
		if s, ok := re.RetryAfterSeconds(); ok {
			w.Header().Set("Retry-After", strconv.Itoa(s))
		}
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

// endregion
