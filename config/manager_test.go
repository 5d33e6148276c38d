package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// store is a source that a test can change.
type store struct {
	mu   sync.Mutex
	text string
	err  error
}

func (*store) Layer() config.Layer { return config.LayerFile }

func (s *store) Read(context.Context) (config.Content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return config.Content{Name: "store", YAML: []byte(s.text)}, s.err
}

func (s *store) set(text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.err = text, err
}

type managed struct {
	*config.Manager

	reg   policy.Registry
	store store
	log   bytes.Buffer
}

func manage(t *testing.T, text string, more ...func(*config.ManagerConfig)) *managed {
	t.Helper()
	m := &managed{store: store{text: text}}
	cfg := config.ManagerConfig{Registry: &m.reg, Sources: []config.Source{&m.store}, Logger: slog.New(slog.NewTextHandler(&m.log, nil))}
	for _, f := range more {
		f(&cfg)
	}
	var err error
	m.Manager, err = config.NewManager(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func (m *managed) passes(t *testing.T, dep string, n int) (let int) {
	t.Helper()
	p, ok := m.reg.Get(dep)
	require.True(t, ok)
	for range n {
		if policy.Run(t.Context(), p, func(context.Context) error { return nil }) == nil {
			let++
		}
	}
	return let
}

func one(policies string) string { return "dependencies: {a: {policies: [" + policies + "]}}" }

func TestManager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("ratelimit: {Rate: 10/s, Burst: 10}, breaker: {}"))
		require.Equal(t, 10, m.passes(t, "a", 20))
		for range 100 {
			r, err := m.Reload(t.Context())
			require.NoError(t, err)
			require.False(t, r.Changed(), r)
		}
		assert.Equal(t, 0, m.passes(t, "a", 1))

		m.store.set(one("ratelimit: {Rate: 20/s, Burst: 20}, breaker: {Window: 5s}, timeout: {Attempt: 1s}"), nil)
		r, err := m.Reload(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "a: timeout: added, ratelimit: resized, breaker: resized", r.String())
		assert.Equal(t, 0, m.passes(t, "a", 1))
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, 10, m.passes(t, "a", 20))

		history := m.History()
		assert.Len(t, history, 10)
		assert.Equal(t, 102, history[9].Number)
		assert.Equal(t, []config.Difference{
			{Path: "a.breaker.Window", New: "5s"},
			{Path: "a.ratelimit.Burst", Old: "10", New: "20"},
			{Path: "a.ratelimit.Rate", Old: "10/s", New: "20/s"},
			{Path: "a.timeout", New: "timeout"},
			{Path: "a.timeout.Attempt", New: "1s"},
		}, config.Diff(history[8].Settings, history[9].Settings))

		r, err = m.Rollback(t.Context(), 101)
		require.NoError(t, err)
		assert.Equal(t, "a: ratelimit: resized, breaker: resized, timeout: removed", r.String())
		assert.Equal(t, "rollback to 101", m.History()[9].Why)
		_, err = m.Rollback(t.Context(), 1)
		require.ErrorContains(t, err, "want one of the history")
		assert.Equal(t, uint64(103), m.reg.Config().Version)
		assert.Contains(t, m.log.String(), `msg=setting path=a.ratelimit.Rate value=10/s layer=file origin=store:1:`)
	})
}

// A bad file changes nothing, and neither does one that cannot be read, or one of which the
// last pipeline does not fit.
func TestManagerRefuses(t *testing.T) {
	t.Parallel()
	m := manage(t, one("breaker: {OpenFor: 3s}"))
	for _, tt := range []struct {
		text string
		err  error
		want string
	}{
		{text: one("breaker: {OpenFro: 3s}"), want: "store:1:"},
		{text: "dependencies: {b: {policies: [breaker: {}]}, a: {policies: [retry: {Name: x}, retry: {Name: y}]}}", want: "one retry policy"},
		{text: one("breaker: {}"), err: errors.New("no connection"), want: "no connection"},
	} {
		m.store.set(tt.text, tt.err)
		_, err := m.Reload(t.Context())
		require.ErrorContains(t, err, tt.want)
		_, ok := m.reg.Get("b")
		assert.False(t, ok)
		a, _ := m.reg.Get("a")
		assert.Len(t, a.Snapshot().Policies, 1)
		assert.Equal(t, uint64(1), m.reg.Config().Version)
		require.ErrorContains(t, m.reg.Config().LastError, tt.want)
	}
	assert.Equal(t, uint64(3), m.reg.Config().Refused)
	assert.Contains(t, m.log.String(), "configuration refused, nothing has changed")
	_, err := config.NewManager(t.Context(), config.ManagerConfig{History: -1, Debounce: -1})
	for _, field := range []string{"Registry", "Sources", "History", "Debounce"} {
		require.ErrorContains(t, err, "config."+field)
	}
	var reg policy.Registry
	_, err = config.NewManager(t.Context(), config.ManagerConfig{Registry: &reg, Sources: []config.Source{file("x: y")}, Logger: slog.New(slog.DiscardHandler)})
	require.Error(t, err)
}

// What is no longer named is removed, and starts afresh when it comes back. Pipelines that
// nobody named are left alone.
func TestManagerAddsAndRemoves(t *testing.T) {
	t.Parallel()
	m := manage(t, one("ratelimit: {Rate: 1/min, Burst: 2}"))
	_, err := m.reg.New("own")
	require.NoError(t, err)
	assert.Equal(t, 2, m.passes(t, "a", 5))
	old, _ := m.reg.Get("a")
	m.store.set("dependencies: {b: {}}", nil)
	r, err := m.Reload(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "a: removed\nb: added", r.String())
	require.ErrorIs(t, policy.Run(t.Context(), old, func(context.Context) error { return nil }), policy.ErrClosed)
	m.store.set(one("ratelimit: {Rate: 1/min, Burst: 2}"), nil)
	_, err = m.Reload(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, m.passes(t, "a", 5))
	_, ok := m.reg.Get("own")
	assert.True(t, ok)
	m.store.set("dependencies: {own: {}}", nil)
	_, err = m.Reload(t.Context())
	require.ErrorIs(t, err, policy.ErrDuplicate)
}

// What is set by hand wins, survives a reload, and ends.
func TestManagerByHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("bulkhead: {Limit: 5}, breaker: {}"))
		limit := func() int {
			p, _ := m.reg.Get("a")
			for _, s := range p.Snapshot().Policies {
				if s.Bulkhead != nil {
					return s.Bulkhead.Limit
				}
			}
			return 0
		}
		r, err := m.Set(t.Context(), "a.bulkhead.Limit", "3", time.Minute, "kim: the vendor asked")
		require.NoError(t, err)
		assert.Equal(t, "a: bulkhead: resized, breaker: kept", r.String())
		m.store.set(one("bulkhead: {Limit: 7}, breaker: {}"), nil)
		_, err = m.Reload(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, limit())
		for _, p := range m.Settings().Dependencies[0].Policies {
			if p.Name == "bulkhead" {
				assert.Equal(t, []config.Value{{Path: "Limit", Text: "3", Origin: config.Origin{Layer: config.LayerHand, Source: "by hand, kim: the vendor asked"}}}, p.Values)
			}
		}
		_, err = m.Set(t.Context(), "a.bulkhead.Limt", "3", 0, "")
		require.ErrorContains(t, err, `did you mean "Limit"`)
		assert.Equal(t, 3, limit())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 7, limit(), "the time is over")
		assert.Equal(t, "expired", m.History()[len(m.History())-1].Why)
		_, err = m.Set(t.Context(), "a.bulkhead.Limit", "4", 0, "")
		require.NoError(t, err)
		_, err = m.Unset(t.Context(), "A.BULKHEAD.LIMIT")
		require.NoError(t, err)
		assert.Equal(t, 7, limit())
		m.Close()
		_, err = m.Set(t.Context(), "a.bulkhead.Limit", "4", 0, "")
		require.ErrorContains(t, err, "closed")
	})
}

func TestManagerAddsCode(t *testing.T) {
	t.Parallel()
	plain := fallback.Value(7)
	m := manage(t, one("breaker: {}"), func(c *config.ManagerConfig) {
		c.Code = func(string) []policy.Policy { return []policy.Policy{plain} }
	})
	p, _ := m.reg.Get("a")
	v, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errors.New("no") })
	require.NoError(t, err)
	assert.Equal(t, 7, v)
}

// A hundred reloads under load refuse nobody and lose nothing.
func TestManagerReloadsConcurrentSafe(t *testing.T) {
	t.Parallel()
	texts := []string{
		one("ratelimit: {Rate: 1M/s, Burst: 1M}, bulkhead: {Limit: 100}, breaker: {}, retry: {}"),
		one("ratelimit: {Rate: 2M/s, Burst: 1M}, bulkhead: {Limit: 200}, breaker: {OpenFor: 3s}, retry: {MaxAttempts: 2}, timeout: {Total: 1m}"),
	}
	for i := range texts {
		texts[i] = strings.NewReplacer("1M/s", "1000000000/s", "2M/s", "2000000000/s", "Burst: 1M", "Burst: 1000000000").Replace(texts[i])
	}
	m := manage(t, texts[0])
	p, _ := m.reg.Get("a")
	var calls atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				assert.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
				calls.Add(1)
			}
		})
	}
	for i := range 100 {
		m.store.set(texts[i%2], nil)
		_, err := m.Reload(t.Context())
		require.NoError(t, err)
		for n := calls.Load(); calls.Load() < n+50; { // let calls pass between reloads
			_ = p.Snapshot()
		}
	}
	close(stop)
	wg.Wait()
	snap := p.Snapshot()
	var total uint64
	for _, n := range snap.Calls {
		total += n
	}
	assert.Equal(t, uint64(calls.Load()), total)
	for _, s := range snap.Policies {
		if s.Bulkhead != nil {
			assert.Equal(t, 0, s.Bulkhead.InFlight)
		}
		if s.Breaker != nil {
			assert.Equal(t, "closed", s.Breaker.State)
		}
		assert.Equal(t, [policy.NumReasons]uint64{}, s.Rejected, s.Name)
	}
}

// The file may be written in place, replaced as editors do, and swapped behind a symbolic
// link as Kubernetes does.
func TestWatchFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path string, limit int) {
		require.NoError(t, os.WriteFile(path, []byte(one(fmt.Sprintf("bulkhead: {Limit: %d}", limit))), 0o600))
	}
	data := func(n, limit int) {
		name := fmt.Sprintf("..%d", n)
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(filepath.Join(dir, name, "breakwater.yaml"), limit)
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	data(1, 1)
	path := filepath.Join(dir, "breakwater.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "breakwater.yaml"), path))

	var reg policy.Registry
	events := make(chan policy.Event, 100)
	reg.Use(policy.Observe(policy.ObserverFunc(func(e policy.Event) {
		if e.Kind == policy.EventConfig {
			events <- e
		}
	})))
	m, err := config.NewManager(t.Context(), config.ManagerConfig{
		Registry: &reg, Sources: []config.Source{config.File(path)}, Debounce: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer m.Close()
	<-events
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- m.Watch(ctx) }()
	until := func(limit int) {
		t.Helper()
		for e := range events { // the test's own deadline bounds it
			if e.Err != nil {
				continue
			}
			p, _ := reg.Get("a")
			if p.Snapshot().Policies[0].Bulkhead.Limit == limit {
				return
			}
		}
	}
	data(2, 2) // a swap
	until(2)
	data(3, 3) // and another
	until(3)
	require.NoError(t, os.Remove(path)) // an editor replaces the file
	write(path+"~", 4)
	require.NoError(t, os.Rename(path+"~", path))
	until(4)
	write(path, 5) // in place
	until(5)
	require.NoError(t, os.WriteFile(path, []byte("nonsense: true"), 0o600))
	for e := range events {
		if e.Err != nil {
			break
		}
	}
	write(path, 6)
	until(6)
	cancel()
	require.NoError(t, <-watched)
}

// What happens to the file between the load and the first look of Watch is not lost, and a
// file that is as it was makes no new version.
func TestWatchSeesWhatChangedBeforeIt(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"changed": 2, "as it was": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "breakwater.yaml")
			write := func(limit int) { // at once, so that nobody reads half of it
				require.NoError(t, os.WriteFile(path+"~", []byte(one(fmt.Sprintf("bulkhead: {Limit: %d}", limit))), 0o600))
				require.NoError(t, os.Rename(path+"~", path))
			}
			write(1)
			var reg policy.Registry
			events := make(chan policy.Event, 10)
			reg.Use(policy.Observe(policy.ObserverFunc(func(e policy.Event) {
				if e.Kind == policy.EventConfig {
					events <- e
				}
			})))
			m, err := config.NewManager(t.Context(), config.ManagerConfig{
				Registry: &reg, Sources: []config.Source{config.File(path)}, Debounce: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			defer m.Close()
			<-events
			write(limit)
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan error, 1)
			go func() { watched <- m.Watch(ctx) }()
			if limit != 1 {
				<-events // the test's own deadline bounds it
			}
			write(3)
			for p, _ := reg.Get("a"); p.Snapshot().Policies[0].Bulkhead.Limit != 3; {
				<-events
			}
			cancel()
			require.NoError(t, <-watched)
			assert.Len(t, m.History(), map[int]int{1: 2, 2: 3}[limit])
		})
	}
}

// fake is a koanf provider that can be watched.
type fake struct {
	limit atomic.Int64
	cb    chan func(any, error)
}

func (*fake) ReadBytes() ([]byte, error) { return nil, errors.New("none") }

func (f *fake) Read() (map[string]any, error) {
	return map[string]any{"dependencies": map[string]any{"a": map[string]any{"policies": []any{
		map[string]any{"bulkhead": map[string]any{"Limit": int(f.limit.Load())}},
	}}}}, nil
}

func (f *fake) Watch(cb func(any, error)) error {
	f.cb <- cb
	return nil
}

func (*fake) Unwatch() error { return nil }

func TestWatchProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{cb: make(chan func(any, error), 1)}
		f.limit.Store(2)
		var reg policy.Registry
		m, err := config.NewManager(t.Context(), config.ManagerConfig{Registry: &reg, Sources: []config.Source{config.Provider("fake", f, nil)}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer m.Close()
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- m.Watch(ctx) }()
		changed := <-f.cb
		f.limit.Store(3)
		for range 5 {
			changed(nil, nil)
		}
		changed(nil, errors.New("passing"))
		time.Sleep(time.Second)
		p, _ := reg.Get("a")
		assert.Equal(t, 3, p.Snapshot().Policies[0].Bulkhead.Limit)
		assert.Len(t, m.History(), 2, "five changes are one")
		cancel()
		require.NoError(t, <-watched)
	})
}

func TestLintAtLoad(t *testing.T) {
	t.Parallel()
	m := manage(t, one("breaker: {MinCalls: 1}"))
	_, err := m.Reload(t.Context())
	require.NoError(t, err)
	lines := slices.DeleteFunc(strings.Split(m.log.String(), "\n"), func(l string) bool { return !strings.Contains(l, "msg=lint") })
	require.Len(t, lines, 1, "once")
	assert.Contains(t, lines[0], "rule=BW024 path=a.breaker.MinCalls origin=store:1:")
}
