package ask

import (
	_ "embed"
	"errors"
	"io"
	"net/http"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

//go:embed breakwater.yaml
var afterYAML []byte

// region after

// newAfter is one of the instances. The pipeline of the answers has the limit that all of
// them share, and what guards the dependency; the gateway's is in front of it.
func newAfter(d *dependency, gateway, answers *policy.Pipeline) (http.Handler, error) {
	server, err := httpx.NewServer(gateway, httpx.ServerConfig{Status: httpx.StatusOf}) // one body for all errors
	if err != nil {
		return nil, err
	}
	guarded := policy.For(answers, fallback.Config[string]{Value: "see the frequent questions", When: unwell})
	return server.Handler(httpx.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		ctx := policy.WithCall(r.Context(), policy.Call{Key: r.Header.Get("User")})
		answer, err := guarded.Do(ctx, d.ask)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, answer)
		return err
	})), nil
}

// unwell says that a call failed for want of the dependency, and not for the user's limit.
func unwell(f policy.FailedCall) bool {
	re, refused := errors.AsType[*policy.RejectedError](f.Err)
	if refused && httpx.StatusOf(re) == http.StatusTooManyRequests {
		return false
	}
	return fallback.Handles(f)
}

// endregion
