package httpx_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// recorder is the writer of a middleware as there are many: it passes on Flush and Hijack, and
// does not know of io.ReaderFrom.
type recorder struct{ http.ResponseWriter }

func (recorder) Flush() {}

func (recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// A handler behind a middleware that hands on Hijack finds it, and a session that follows is no
// slow answer.
func TestHijackBehindAMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		guarded(t, pipe(t, g), httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h, ok := w.(http.Hijacker)
			require.True(t, ok)
			_, _, err := h.Hijack()
			require.NoError(t, err)
			time.Sleep(time.Hour)
		})).ServeHTTP(recorder{w}, r)
		assert.Equal(t, []policy.Outcome{{Kind: policy.Success}}, g.outcomes)

		for name, around := range map[string]func(http.Handler) http.Handler{
			"server": func(next http.Handler) http.Handler { return guarded(t, nil, httpx.ServerConfig{}, next) },
			"hop":    httpx.Hop{Trust: func(*http.Request) bool { return true }}.Handler,
		} {
			w := httptest.NewRecorder()
			around(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, ok := w.(http.Hijacker)
				assert.True(t, ok, name)
				n, err := io.Copy(w, io.LimitReader(strings.NewReader("a whole answer"), 7))
				require.NoError(t, err)
				assert.EqualValues(t, 7, n, name)
			})).ServeHTTP(recorder{w}, r)
			assert.Equal(t, "a whole", w.Body.String(), name)
		}
	})
}
