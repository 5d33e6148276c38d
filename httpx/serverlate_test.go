package httpx_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// An error that comes when the answer has begun breaks the connection off. What that means to
// the pipelines is what the error says, of the server's and of those around it: a refusal
// further down is no failure of the handler's.
func TestServerLateError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		amended []policy.Kind
	}{
		"refused further down": {err: refusal(policy.ReasonOpen, time.Second, breaker.ErrOpen)},
		"failed":               {err: errBoom, amended: []policy.Kind{policy.Failure}},
		"permanent":            {err: policy.AsPermanent(errBoom), amended: []policy.Kind{policy.Permanent}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner, outer := &gate{}, &gate{}
			h := guarded(t, pipe(t, outer), httpx.ServerConfig{}, guarded(t, pipe(t, inner), httpx.ServerConfig{},
				httpx.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
					w.WriteHeader(http.StatusOK)
					return c.err
				})))
			assert.PanicsWithValue(t, http.ErrAbortHandler, func() { page(h) })
			assert.Equal(t, c.amended, inner.amended)
			assert.Equal(t, c.amended, outer.amended, "around it")
			assert.Zero(t, inner.held()+outer.held())
		})
	}
}
