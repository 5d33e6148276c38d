package live_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/live"
)

// What real servers decide is as in virtual time, however busy this machine is. What depends on
// how fast it is, a run of the command shows.
func TestPlay(t *testing.T) {
	t.Parallel()
	for name, certain := range map[string][]string{
		"aggregator": {"400 writes, their store away for 2 s: lost", "  written in the end", "  in the dead letters", "  written twice"},
		"orders":     nil, // all its figures depend on it
		"ask":        {"100 questions through 3 instances: 200", "  429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage, err := live.NewStage(t.Context(), name)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, stage.Close(context.WithoutCancel(t.Context()))) })
			var missing []error
			r, err := live.Play(t.Context(), name, stage, func(err error) { missing = append(missing, err) })
			require.NoError(t, err)
			if len(missing) > 0 {
				t.Skip(missing)
			}
			assert.NotEmpty(t, r.Rows)
			found := 0
			for _, row := range r.Rows {
				for _, c := range certain {
					if strings.HasPrefix(row.Name, c) {
						found++
						assert.True(t, row.OK(), "%s: want %s, got %s before and %s after", row.Name, row.Expected(), row.Before, row.After)
					}
				}
			}
			assert.Equal(t, len(certain), found)
			assert.Empty(t, stage.Registry.Snapshot(), "pipelines are left")
		})
	}
	stage, err := live.NewStage(t.Context(), "")
	require.NoError(t, err)
	_, err = live.Play(t.Context(), "nothing", stage, nil)
	require.ErrorIs(t, err, live.ErrNoLive)
	none, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = live.Play(none, "aggregator", stage, func(err error) { t.Error(err) })
	require.ErrorIs(t, err, context.Canceled, "before anything was started")
	require.NoError(t, stage.Close(t.Context()))
}
