package config_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

// settingOf returns a setting of a's policies.
func settingOf(t *testing.T, c policy.Console, policyName, field string) policy.EffectiveSetting {
	t.Helper()
	for _, s := range c.Settings("a") {
		if s.Policy == policyName && s.Field == field {
			return s
		}
	}
	require.Fail(t, "no such setting", "%s.%s", policyName, field)
	return policy.EffectiveSetting{}
}

// Every field is there, with its value and where that comes from.
func TestConsoleSettings(t *testing.T) {
	t.Parallel()
	m := manage(t, one("ratelimit: {Rate: 100/s}, bulkhead: {Limit: 5}, retry: {Budget: {Ratio: 0.1}}, breaker: {}, lanes: {Lanes: [{Name: x, Rate: 5/s}]}, timeout: {Total: 2s}"), func(c *config.ManagerConfig) {
		c.Sources = append(c.Sources, config.Environment("BW_", []string{"BW_A__BREAKER__OPENFOR=7s"}), config.Pinned("a.retry.MaxAttempts=2"))
	})
	c := m.Console()
	for _, want := range []policy.EffectiveSetting{
		{Policy: "ratelimit", Kind: "ratelimit", Field: "Rate", Value: "100/s", Layer: "file"},
		{Policy: "ratelimit", Kind: "ratelimit", Field: "Burst", Value: "100", Layer: "default"},
		{Policy: "bulkhead", Kind: "bulkhead", Field: "Limit", Value: "5", Layer: "file"},
		{Policy: "bulkhead", Kind: "bulkhead", Field: "Reserve", Value: "0", Layer: "default"},
		{Policy: "breaker", Kind: "breaker", Field: "OpenFor", Value: "7s", Layer: "environment", Origin: "BW_A__BREAKER__OPENFOR"},
		{Policy: "breaker", Kind: "breaker", Field: "MinCalls", Value: "20", Layer: "default"},
		{Policy: "breaker", Kind: "breaker", Field: "SlowRatio", Value: "off", Layer: "default"},
		{Policy: "retry", Kind: "retry", Field: "MaxAttempts", Value: "2", Layer: "pinned", Origin: "pinned a.retry.MaxAttempts"},
		{Policy: "retry", Kind: "retry", Field: "Budget.Ratio", Value: "0.1", Layer: "file"},
		{Policy: "lanes", Kind: "lanes", Field: "Lanes[0].Burst", Value: "5", Layer: "default"},
		{Policy: "timeout", Kind: "timeout", Field: "Total", Value: "2s", Layer: "file"},
		{Policy: "timeout", Kind: "timeout", Field: "Attempt", Value: "0s", Layer: "default"},
	} {
		got := settingOf(t, c, want.Policy, want.Field)
		if want.Layer == "file" {
			assert.Regexp(t, `^store:\d+:\d+$`, got.Origin)
			got.Origin = ""
		}
		assert.Equal(t, want, got)
	}
	assert.Nil(t, c.Settings("unknown"))
}

// What is set by hand says who, why and until when; it survives reloads, and ends, also
// across them.
func TestConsoleChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("bulkhead: {Limit: 5}, breaker: {OpenFor: 5s}, retry: {MaxAttempts: 2}"))
		c := m.Console()
		change := policy.HandChange{
			Dependency: "a", Policy: "bulkhead", Values: map[string]string{"Limit": "3", "MaxWait": "1s"}, Length: time.Minute, Note: "kim: why",
		}
		effect, err := c.Preview(t.Context(), change)
		require.NoError(t, err)
		require.Len(t, effect.Differences, 2)
		assert.Equal(t, "a.bulkhead.Limit", effect.Differences[0].Path)
		assert.Equal(t, []string{"5", "3"}, []string{effect.Differences[0].Old, effect.Differences[0].New})
		assert.Regexp(t, `^store:`, effect.Differences[0].Origin)
		assert.Equal(t, []policy.Replacement{{Policy: "bulkhead", Kind: "bulkhead", Change: policy.ChangeResized}}, effect.Policies)
		assert.Equal(t, "5", settingOf(t, c, "bulkhead", "Limit").Value, "a preview changes nothing")

		id, err := c.Change(t.Context(), change)
		require.NoError(t, err)
		until := time.Now().Add(time.Minute)
		m.store.set(one("bulkhead: {Limit: 9}, breaker: {OpenFor: 6s}, retry: {MaxAttempts: 2}"), nil)
		_, err = m.Reload(t.Context())
		require.NoError(t, err)
		assert.Equal(t, policy.EffectiveSetting{
			Policy: "bulkhead", Kind: "bulkhead", Field: "Limit", Value: "3", Layer: "hand", Origin: "by hand, kim: why", Note: "kim: why", Until: until,
		}, settingOf(t, c, "bulkhead", "Limit"))

		// Another one takes the place of a part of it; what is undone is what is left.
		_, err = c.Change(t.Context(), policy.HandChange{Dependency: "a", Policy: "bulkhead", Values: map[string]string{"Limit": "4"}, Length: time.Hour})
		require.NoError(t, err)
		require.NoError(t, c.Undo(t.Context(), id))
		require.NoError(t, c.Undo(t.Context(), id), "there is nothing left")
		assert.Equal(t, "4", settingOf(t, c, "bulkhead", "Limit").Value)
		assert.Equal(t, "default", settingOf(t, c, "bulkhead", "MaxWait").Layer)

		for field, value := range map[string]string{"FailureRatio": "0.9", "OpenFor": "1m"} {
			_, err = c.Change(t.Context(), policy.HandChange{Dependency: "a", Policy: "breaker", Values: map[string]string{field: value}, Length: time.Hour})
			require.NoError(t, err)
		}
		_, err = c.Change(t.Context(), policy.HandChange{Dependency: "a", Policy: "retry", Values: map[string]string{"MaxAttempts": "4"}, Length: time.Hour})
		require.NoError(t, err)
		before := len(m.History())
		for _, bad := range []policy.HandChange{
			{Dependency: "a", Policy: "breaker"},
			{Dependency: "a", Policy: "breaker", Values: map[string]string{"FailureRatio": "2"}},
			{Dependency: "a", Policy: "breaker", Values: map[string]string{"OpenFr": "2s"}},
			{Dependency: "b", Policy: "breaker", Values: map[string]string{"OpenFor": "2s"}},
		} {
			_, err := c.Preview(t.Context(), bad)
			require.Error(t, err)
			_, err = c.Change(t.Context(), bad)
			require.Error(t, err)
		}
		assert.Len(t, m.History(), before)
		assert.NoError(t, m.reg.Config().LastError, "the sources are right")
		assert.Equal(t, "0.9", settingOf(t, c, "breaker", "FailureRatio").Value)

		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, "9", settingOf(t, c, "bulkhead", "Limit").Value, "what the file says by then")
		assert.Equal(t, "6s", settingOf(t, c, "breaker", "OpenFor").Value)
		versions := c.Status().Versions
		assert.Equal(t, "expired", versions[len(versions)-1].Why)
		m.Close()
	})
}

// What is wrong with a file stays to be seen until it is right, whatever is done by hand.
func TestConsoleFault(t *testing.T) {
	t.Parallel()
	m := manage(t, one("bulkhead: {Limit: 5}, breaker: {}"))
	defer m.Close()
	c := m.Console()
	require.NoError(t, c.Status().Fault)
	m.store.set(one("bulkhead: {Limit: 0.5}, breaker: {OpenFr: 1s}"), nil)
	_, err := m.Reload(t.Context())
	require.Error(t, err)
	id, err := c.Change(t.Context(), policy.HandChange{Dependency: "a", Policy: "bulkhead", Values: map[string]string{"Limit": "4"}, Length: time.Hour, Note: "kim: x"})
	require.NoError(t, err)
	s := c.Status()
	require.ErrorContains(t, s.Fault, "a.bulkhead.Limit")
	require.ErrorContains(t, s.Fault, `did you mean "OpenFor"`)
	assert.NotZero(t, s.FaultAt)
	assert.Equal(t, s.Fault, m.reg.Config().LastError)
	last := s.Versions[len(s.Versions)-1]
	assert.Equal(t, []string{"hand", "kim: x"}, []string{last.Why, last.Note})
	assert.Equal(t, []string{"a: bulkhead: resized, breaker: kept"}, last.Changes)
	require.Len(t, last.Differences, 1)
	assert.Equal(t, "4", last.Differences[0].New)

	// A change by hand does not keep a file from being loaded that no longer knows of it.
	m.store.set(one("breaker: {}"), nil)
	_, err = m.Reload(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Status().Fault)
	require.NoError(t, m.reg.Config().LastError)
	require.NoError(t, c.Undo(t.Context(), id), "it has ended")

	effect, err := c.PreviewRollback(t.Context(), 1)
	require.NoError(t, err)
	assert.Contains(t, effect.Policies, policy.Replacement{Policy: "bulkhead", Kind: "bulkhead", Change: policy.ChangeAdded})
	require.NoError(t, c.Rollback(t.Context(), 1, "kim: back"))
	assert.Equal(t, "5", settingOf(t, c, "bulkhead", "Limit").Value)
	versions := c.Status().Versions
	assert.Equal(t, "rollback to 1", versions[len(versions)-1].Why)
	_, err = c.PreviewRollback(t.Context(), 99)
	require.Error(t, err)
	require.Error(t, c.Rollback(t.Context(), 99, ""))
}
