package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

const ms = time.Millisecond

// bubbleDependency returns a dependency without a socket.
func bubbleDependency(s script.Script, workers int) *dependency {
	d := &dependency{
		server: &server{done: make(chan struct{})}, clock: &clock{}, script: s,
		body: `{"in_stock":true}`, maxQueue: maxQueue,
	}
	if workers > 0 {
		d.workers = make(chan struct{}, workers)
	}
	d.clock.start(time.Now())
	return d
}

// ask calls h once and returns the status and when the answer came, on its clock.
func ask(t *testing.T, ctx context.Context, d *dependency, phase int) (status int, at time.Duration) { //nolint:revive // t comes first in helpers
	t.Helper()
	req, err := newCall(ctx, "http://dependency/", phase)
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, req)
	return rec.Code, d.clock.now()
}

func TestDependencyFollowsItsScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := script.Incident(20*time.Second, 30*ms)
		require.NoError(t, err)
		d := bubbleDependency(s, 8)
		for _, step := range []struct {
			at     time.Duration
			status int
			takes  time.Duration
		}{
			{0, http.StatusOK, 30 * ms},
			{6 * time.Second, http.StatusOK, 2 * time.Second},           // slow
			{10 * time.Second, http.StatusInternalServerError, 80 * ms}, // failing
			{13500 * ms, http.StatusOK, 45 * ms},                        // recovering
			{16 * time.Second, http.StatusOK, 30 * ms},
		} {
			time.Sleep(step.at - d.clock.now())
			status, end := ask(t, t.Context(), d, 0)
			assert.Equal(t, step.status, status, "at %s", step.at)
			assert.Equal(t, step.at+step.takes, end, "end of the call at %s", step.at)
		}
	})
}

// TestDependencyHasLimitedCapacity pins that calls beyond the capacity wait in their
// order, and that one whose client has hung up costs as much as any other.
func TestDependencyHasLimitedCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := bubbleDependency(script.Steady(100*ms), 2)
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		ends := make([]time.Duration, 6)
		var wg sync.WaitGroup
		for i := range ends {
			wg.Go(func() { _, ends[i] = ask(t, gone, d, 0) })
			synctest.Wait() // it is in line
		}
		assert.EqualValues(t, 4, d.queued.Load(), "calls that wait")
		wg.Wait()
		assert.Equal(t, []time.Duration{100 * ms, 100 * ms, 200 * ms, 200 * ms, 300 * ms, 300 * ms}, ends)
		assert.Zero(t, d.queued.Load())
	})
}

func TestDependencyRefusesWhenItsQueueIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := bubbleDependency(script.Steady(100*ms), 1)
		d.maxQueue = 1
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = ask(t, t.Context(), d, 0) })
			synctest.Wait()
		}
		status, at := ask(t, t.Context(), d, 0)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Zero(t, at, "it is refused at once")
		wg.Wait()
		status, _ = ask(t, t.Context(), d, 0)
		assert.Equal(t, http.StatusOK, status, "there is room again")
	})
}

// TestDependencyCountsByPhaseOfTheRequest pins what dependency_calls_per_offered is
// made of: a call counts for the phase in which its user's request arrived, refused
// ones count too, and calls of the warm-up do not.
func TestDependencyCountsByPhaseOfTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := bubbleDependency(script.Steady(ms), 1)
		for _, phase := range []int{-1, script.HealthyPhase, script.SlowPhase, script.SlowPhase, script.FailingPhase, script.Phases} {
			_, _ = ask(t, t.Context(), d, phase)
		}
		d.maxQueue = 0
		status, _ := ask(t, t.Context(), d, script.SlowPhase)
		require.Equal(t, http.StatusServiceUnavailable, status)
		assert.EqualValues(t, 1, d.total(script.HealthyPhase))
		assert.EqualValues(t, 4, d.total(incidentPhases()...))
		assert.EqualValues(t, 5, d.total(everyPhase()...))
	})
}

func TestDependencyGivesUpWhenItsServerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := bubbleDependency(script.Steady(time.Hour), 1)
		var wg sync.WaitGroup
		for range 3 { // one works, two wait
			wg.Go(func() { _, _ = ask(t, t.Context(), d, 0) })
		}
		synctest.Wait()
		close(d.done)
		wg.Wait()
		assert.Zero(t, d.clock.now(), "nobody waited for the end of the work")
	})
}
