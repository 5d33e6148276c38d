package replay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
)

var errAway, errLate = errors.New("away"), errors.New("late")

// What is over HTTP in a live run answers as it does otherwise, and nothing of it is left.
func TestLive(t *testing.T) {
	t.Parallel()
	registry := new(policy.Registry)
	scene := func(w *replay.World) {
		call := w.Remote(func(context.Context) error { return errAway })
		assert.ErrorIs(t, call(t.Context()), errAway)
		assert.NoError(t, w.Remote(func(context.Context) error { return nil })(t.Context()))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, w.Remote(func(ctx context.Context) error { return ctx.Err() })(gone), context.Canceled)

		h := w.OverHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Answer", r.Header.Get("User"))
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.URL.Path)
		}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ask", http.NoBody)
		r.Header.Set("User", "alice")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		assert.Equal(t, http.StatusTeapot, rec.Code)
		assert.Equal(t, "alice", rec.Header().Get("Answer"))
		assert.Equal(t, "/ask", rec.Body.String())

		assert.Equal(t, "shop", w.Pipeline("shop", bulkhead.Semaphore{Limit: 1}).Name())
		second := w.Pipeline("shop", bulkhead.Semaphore{Limit: 1}).Name()
		assert.Equal(t, w.Live(), second != "shop", "names are unique where a dashboard shows them")
	}
	require.NoError(t, replay.RunLive(t.Context(), &replay.Live{Registry: registry}, func(w *replay.World) {
		scene(w)
		assert.Len(t, registry.Snapshot(), 2)
	}))
	assert.Empty(t, registry.Snapshot())
	require.NoError(t, replay.Run(scene))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, replay.RunLive(done, &replay.Live{Registry: registry}, scene), context.Canceled)
}

// Of a scene that fails nothing is left either.
func TestLiveSceneThatFails(t *testing.T) {
	t.Parallel()
	registry := new(policy.Registry)
	err := replay.RunLive(t.Context(), &replay.Live{Registry: registry}, func(w *replay.World) {
		w.AtEnd(func() { w.Must(errLate) })
		w.Pipeline("shop", bulkhead.Semaphore{Limit: 1})
		w.Remote(func(context.Context) error { return nil })
		w.Must(errAway)
	})
	require.ErrorIs(t, err, errAway)
	require.ErrorIs(t, err, errLate)
	assert.Empty(t, registry.Snapshot())
}

func TestLoosen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		figure replay.Figure
		ok     bool
	}{
		{replay.None, true},
		{replay.Is(13, 10), true},
		{replay.Is(14, 10), false},
		{replay.Exactly(1, 0), false},
		{replay.Exactly(10, 10), true},
		{replay.Is(7, 10), true},
		{replay.Is(6, 10), false},
		{replay.AtMost(1.4, 1.0), true},
		{replay.AtMost(1.5, 1.0), false},
		{replay.AtLeast(880*time.Millisecond, time.Second), true},
		{replay.AtLeast(700*time.Millisecond, time.Second), false},
		{replay.AtMost(time.Minute, time.Second), false},
		{replay.Says("slow", "errors"), false},
	} {
		r := new(replay.Result)
		r.Row("x", replay.None, tt.figure)
		r.Loosen()
		assert.Equal(t, tt.ok, r.OK(), "%s: %s", tt.figure, r.Rows[0].Expected())
	}
}
