package config_test

import (
	"context"
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

// slowStore is a store whose readings take long to arrive.
type slowStore struct {
	store

	on    sync.Mutex
	delay time.Duration
}

func (s *slowStore) Read(ctx context.Context) (config.Content, error) {
	c, err := s.store.Read(ctx)
	s.on.Lock()
	d := s.delay
	s.on.Unlock()
	select {
	case <-time.After(d):
		return c, err
	case <-ctx.Done():
		return config.Content{}, ctx.Err()
	}
}

func (s *slowStore) after(d time.Duration) {
	s.on.Lock()
	defer s.on.Unlock()
	s.delay = d
}

func newSlow(t *testing.T) (*config.Manager, *slowStore) {
	t.Helper()
	var reg policy.Registry
	s := &slowStore{store: store{text: one("bulkhead: {Limit: 1}")}}
	m, err := config.NewManager(t.Context(), config.ManagerConfig{Registry: &reg, Sources: []config.Source{s}})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m, s
}

// What was read first does not take effect last, however long its reading took.
func TestReloadsDoNotOvertakeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, s := newSlow(t)
		s.after(time.Minute)
		done := make(chan error, 1)
		go func() {
			_, err := m.Reload(t.Context())
			done <- err
		}()
		synctest.Wait()
		s.after(0)
		s.set(one("bulkhead: {Limit: 2}"), nil)
		_, err := m.Reload(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-done)
		assert.Equal(t, "2", m.Settings().Dependencies[0].Policies[0].Values[0].Text)
	})
}

// Who waits for the reading of another is not held up beyond the own context, and nobody
// who only looks is.
func TestReloadWaitsForNobodyTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, s := newSlow(t)
		s.after(time.Hour)
		go func() { _, _ = m.Reload(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := m.Reload(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begin))
		assert.Len(t, m.History(), 1)
		_, err = m.Set(t.Context(), "a.bulkhead.Limit", "3", 0, "x")
		require.NoError(t, err, "by hand nothing is read")
		time.Sleep(time.Hour)
		assert.Equal(t, "3", m.Settings().Dependencies[0].Policies[0].Values[0].Text)
	})
}

// A removed pipeline may take for ever to close. The manager does not.
func TestRemovalHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, "dependencies: {a: {policies: [breaker: {}]}, b: {policies: [pool: {Workers: 1}]}}")
		p, _ := m.reg.Get("b")
		release := make(chan struct{})
		go func() { _ = policy.Run(t.Context(), p, func(context.Context) error { <-release; return nil }) }()
		synctest.Wait()
		m.store.set(one("breaker: {}"), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = m.Reload(ctx)
		}()
		synctest.Wait()
		assert.Len(t, m.Console().Status().Versions, 2, "whoever looks is not held up")
		assert.Len(t, m.Settings().Dependencies, 1)
		_, ok := m.reg.Get("b")
		assert.False(t, ok)
		_, err := m.Set(t.Context(), "a.breaker.OpenFor", "3s", 0, "x")
		require.NoError(t, err)
		cancel()
		<-done
		close(release)
	})
}

// A setting whose end the others cannot do without yet stays, and says so, until they can.
func TestExpiryThatCannotBeYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("adaptive: {Min: 10, Max: 20}"))
		_, err := m.Set(t.Context(), "a.adaptive.Max", "50", time.Minute, "ann: more")
		require.NoError(t, err)
		_, err = m.Set(t.Context(), "a.adaptive.Min", "30", time.Hour, "bob: at least")
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		s := settingOf(t, m.Console(), "adaptive", "Max")
		assert.Equal(t, "50", s.Value)
		assert.Equal(t, "ann: more", s.Note, "what is in force says who did it")
		m.store.set(one("adaptive: {Min: 11, Max: 21}"), nil)
		_, err = m.Reload(t.Context())
		require.NoError(t, err, "a file is not refused for what somebody did by hand")
		_, err = m.Unset(t.Context(), "a.adaptive.Min")
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "21", settingOf(t, m.Console(), "adaptive", "Max").Value, "it ends as soon as it can")
	})
}

// A text by hand is bounded as a file is.
func TestSettingByHandIsBounded(t *testing.T) {
	t.Parallel()
	m := manage(t, one("breaker: {}"))
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", 1<<16),
		"braces":   strings.Repeat("{a: ", 1<<15),
		"dashes":   strings.Repeat("- ", 1<<16),
		"marks":    strings.Repeat("? ", 1<<13),
		"long":     strings.Repeat("a: [b, ", 1<<11),
	} {
		begin := time.Now()
		_, err := m.Set(t.Context(), "a.breaker.OpenFor", text, 0, "x")
		require.Error(t, err, name)
		assert.Less(t, time.Since(begin), 2*time.Second, name)
	}
}

// lasting is a fallback of the program that has something to close.
type lasting struct {
	policy.Fallback[any]

	closed *atomic.Int64
}

func (l lasting) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fallback", Name: "fallback", Fallback: l}, nil
}

func (l lasting) Close(context.Context) error { l.closed.Add(1); return nil }

// What a program hands over may serve several dependencies, and again after it was gone: no
// pipeline closes it.
func TestWhatIsHandedOverStaysOpen(t *testing.T) {
	t.Parallel()
	var closed atomic.Int64
	own := lasting{fallback.Value[any]("x"), &closed}
	both := "dependencies: {a: {policies: [fallback: {Use: own}]}, b: {policies: [fallback: {Use: own}]}}"
	m := manage(t, both, func(c *config.ManagerConfig) {
		c.Sources = append(c.Sources, &config.Program{Policies: map[string]policy.Policy{"own": own}})
	})
	for _, text := range []string{
		"dependencies: {a: {policies: [fallback: {Use: own}]}}",
		"dependencies: {a: {policies: [breaker: {}]}}",
		"dependencies: {a: {policies: [breaker: {OpenFor: 1s}]}}", // closes what was replaced before
		both,
	} {
		m.store.set(text, nil)
		_, err := m.Reload(t.Context())
		require.NoError(t, err)
		assert.Zero(t, closed.Load(), text)
	}
	_, err := m.Console().Preview(t.Context(), policy.HandChange{Dependency: "a", Policy: "fallback", Values: map[string]string{"Name": "y"}})
	require.NoError(t, err)
	assert.Zero(t, closed.Load(), "a preview closes nothing")
}

// A setting by hand of what an earlier version did not have keeps nobody from going back.
func TestRollbackPastASettingByHand(t *testing.T) {
	t.Parallel()
	m := manage(t, one("breaker: {}"))
	m.store.set(one("breaker: {}, bulkhead: {Limit: 5}"), nil)
	_, err := m.Reload(t.Context())
	require.NoError(t, err)
	_, err = m.Set(t.Context(), "a.bulkhead.Limit", "3", 0, "ann")
	require.NoError(t, err)
	_, err = m.Set(t.Context(), "a.breaker.OpenFor", "9s", 0, "ann")
	require.NoError(t, err)
	effect, err := m.Console().PreviewRollback(t.Context(), 1)
	require.NoError(t, err)
	assert.Len(t, effect.Differences, 2, "%v", effect.Differences)
	assert.Equal(t, "3", settingOf(t, m.Console(), "bulkhead", "Limit").Value, "a preview changes nothing")
	_, err = m.Reload(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "ann", settingOf(t, m.Console(), "bulkhead", "Limit").Note, "nor what a load would do")
	require.NoError(t, m.Console().Rollback(t.Context(), 1, "ann: back"))
	assert.Equal(t, "9s", settingOf(t, m.Console(), "breaker", "OpenFor").Value, "others stay")
	assert.Contains(t, m.log.String(), "what it is about is gone")
}
