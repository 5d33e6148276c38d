package config_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

// followed is a store that can be watched.
type followed struct {
	store

	poke chan func()
}

func (f *followed) Watch(ctx context.Context, changed func()) error {
	f.poke <- changed
	<-ctx.Done()
	return nil
}

// A writer may be half way through when the source is read, and what it has written so far
// may be a configuration, though another one. Only what is read twice counts.
func TestWatchWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const step = 150 * time.Millisecond
		src := &followed{poke: make(chan func(), 1)}
		src.text = "dependencies:\n  a: {}\n  b: {}\n"
		var reg policy.Registry
		var log strings.Builder
		m, err := config.NewManager(t.Context(), config.ManagerConfig{
			Registry: &reg, Sources: []config.Source{src}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Debounce: 100 * time.Millisecond,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- m.Watch(ctx) }()
		changed := <-src.poke

		// In pieces, each of which would do, and of which only the first is told of.
		for _, text := range []string{"dependencies:", "dependencies:\n  a: {", "dependencies:\n  a: {}", "dependencies:\n  a: {}\n  b: {}\n  c: {}\n"} {
			src.set(text, nil)
			changed()
			time.Sleep(step)
			assert.Len(t, m.History(), 1, text)
			assert.Zero(t, reg.Config().Refused, text)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, m.History(), 2)
		assert.Len(t, m.Settings().Dependencies, 3)

		// A file that does not read keeps what is in force, and is told of once.
		src.set("dependencies: [", nil)
		changed()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, m.History(), 2)
		assert.Equal(t, uint64(1), reg.Config().Refused)

		// A source that cannot be read is asked again without being told.
		src.set("dependencies: {}", errors.New("no connection"))
		changed()
		time.Sleep(time.Hour)
		assert.Equal(t, uint64(2), reg.Config().Refused)
		src.set("dependencies: {a: {}}", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, m.History(), 3)
		assert.Len(t, m.Settings().Dependencies, 1)
		cancel()
		require.NoError(t, <-watched)
		m.Close()
	})
}

// A file that is empty is being written: a signal alone takes it for what it is.
func TestWatchLeavesAnEmptyFileAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "breakwater.yaml")
	require.NoError(t, os.WriteFile(path, []byte("dependencies: {a: {}}"), 0o600))
	src := &followed{poke: make(chan func(), 1)}
	src.text = "dependencies: {b: {}}"
	var reg policy.Registry
	events := make(chan policy.Event, 10)
	reg.Use(policy.Observe(policy.ObserverFunc(func(e policy.Event) {
		if e.Kind == policy.EventConfig {
			events <- e
		}
	})))
	m, err := config.NewManager(t.Context(), config.ManagerConfig{
		Registry: &reg, Sources: []config.Source{config.File(path), src}, Logger: slog.New(slog.DiscardHandler), Debounce: time.Millisecond,
	})
	require.NoError(t, err)
	defer m.Close()
	<-events
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- m.Watch(ctx) }()
	changed := <-src.poke
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	src.set("dependencies: {b: {}, c: {}}", nil) // seen together with the empty file, if at all
	changed()
	require.NoError(t, os.WriteFile(path, []byte("dependencies: {a: {}, d: {}}"), 0o600))
	for len(m.Settings().Dependencies) < 4 {
		e := <-events
		require.NoError(t, e.Err)
		_, ok := reg.Get("a")
		assert.True(t, ok)
	}
	cancel()
	require.NoError(t, <-watched)
}
