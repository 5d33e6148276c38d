package bulkhead_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// fields returns the names of the fields that err, made of joined ConfigErrors,
// complains about.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "faults are joined: %v", err)
	var names []string
	for _, e := range joined.Unwrap() {
		ce, ok := e.(*policy.ConfigError) //nolint:errorlint // each fault is a bare ConfigError
		require.True(t, ok, "%T is a ConfigError", e)
		names = append(names, ce.Field)
	}
	return names
}

func TestSemaphoreValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  bulkhead.Semaphore
		want []string
	}{
		{name: "zero", cfg: bulkhead.Semaphore{}},
		{name: "reserve", cfg: bulkhead.Semaphore{Limit: 3, Reserve: 2}},
		{name: "reserve below the default limit", cfg: bulkhead.Semaphore{Reserve: 99}},
		{name: "reserve is all", cfg: bulkhead.Semaphore{Limit: 3, Reserve: 3}, want: []string{"Reserve"}},
		{name: "reserve is the default limit", cfg: bulkhead.Semaphore{Reserve: 100}, want: []string{"Reserve"}},
		{name: "negative reserve", cfg: bulkhead.Semaphore{Reserve: -1}, want: []string{"Reserve"}},
		{name: "reserve of a bad limit", cfg: bulkhead.Semaphore{Limit: -1, Reserve: 1}, want: []string{"Limit"}},
		{name: "smallest", cfg: bulkhead.Semaphore{Limit: 1}},
		{name: "largest", cfg: bulkhead.Semaphore{Limit: math.MaxInt32, MaxWait: math.MaxInt64, MaxWaiters: math.MaxInt32}},
		{name: "waits", cfg: bulkhead.Semaphore{MaxWait: time.Second}},
		{name: "shadow", cfg: bulkhead.Semaphore{Limit: 5, Shadow: true}},
		{name: "negative limit", cfg: bulkhead.Semaphore{Limit: -1}, want: []string{"Limit"}},
		{name: "negative wait", cfg: bulkhead.Semaphore{MaxWait: -1}, want: []string{"MaxWait"}},
		{name: "negative waiters", cfg: bulkhead.Semaphore{MaxWait: time.Second, MaxWaiters: -1}, want: []string{"MaxWaiters"}},
		{name: "waiters without wait", cfg: bulkhead.Semaphore{MaxWaiters: 1}, want: []string{"MaxWaiters"}},
		{
			name: "all at once", cfg: bulkhead.Semaphore{Limit: -2, MaxWait: -time.Second, MaxWaiters: math.MinInt32},
			want: []string{"Limit", "MaxWait", "MaxWaiters"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.want, fields(t, err), "faults of %+v: %v", tt.cfg, err)

			p, newErr := bulkhead.New("", tt.cfg)
			assert.Equal(t, err, newErr, "New says what Validate says")
			assert.Equal(t, err == nil, p != nil, "permits exist if and only if the config is valid")

			part, buildErr := tt.cfg.BuildPolicy()
			assert.Equal(t, err, buildErr, "BuildPolicy says what Validate says")
			assert.Equal(t, err == nil, part.Gate != nil, "a gate exists if and only if the config is valid")
		})
	}
}

func TestSemaphoreContradictionNamesBothFields(t *testing.T) {
	t.Parallel()
	_, err := bulkhead.New("db", bulkhead.Semaphore{MaxWaiters: 7})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "MaxWaiters: 7")
	assert.Contains(t, err.Error(), "MaxWait is 0")
}

func TestConfigIsEffective(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		instance string
		cfg      bulkhead.Semaphore
		want     bulkhead.Semaphore
	}{
		{name: "zero", want: bulkhead.Semaphore{Name: "bulkhead", Limit: 100}},
		{
			name: "waiters follow the limit", cfg: bulkhead.Semaphore{Limit: 7, MaxWait: time.Second},
			want: bulkhead.Semaphore{Name: "bulkhead", Limit: 7, MaxWait: time.Second, MaxWaiters: 7},
		},
		{
			name: "waiters follow the default limit", cfg: bulkhead.Semaphore{MaxWait: time.Second},
			want: bulkhead.Semaphore{Name: "bulkhead", Limit: 100, MaxWait: time.Second, MaxWaiters: 100},
		},
		{
			name: "all set", cfg: bulkhead.Semaphore{Name: "db", Limit: 2, MaxWait: time.Second, MaxWaiters: 3, Shadow: true},
			want: bulkhead.Semaphore{Name: "db", Limit: 2, MaxWait: time.Second, MaxWaiters: 3, Shadow: true},
		},
		{
			name: "the argument goes before the field", instance: "replica", cfg: bulkhead.Semaphore{Name: "db"},
			want: bulkhead.Semaphore{Name: "replica", Limit: 100},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := bulkhead.New(tt.instance, tt.cfg)
			require.NoError(t, err)
			assert.Equal(t, tt.want, p.Config())
		})
	}
}

func FuzzSemaphore(f *testing.F) {
	f.Add(0, int64(0), 0, 0)
	f.Add(1, int64(time.Second), 1, 0)
	f.Add(-1, int64(-1), -1, -1)
	f.Add(math.MaxInt32, int64(math.MaxInt64), math.MaxInt32, math.MaxInt32-1)
	f.Add(math.MaxInt, int64(math.MinInt64), math.MinInt, math.MaxInt)
	f.Fuzz(func(t *testing.T, limit int, wait int64, waiters, reserve int) {
		cfg := bulkhead.Semaphore{Limit: limit, MaxWait: time.Duration(wait), MaxWaiters: waiters, Reserve: reserve}
		p, err := bulkhead.New("", cfg)
		if err != nil {
			assert.NotEmpty(t, fields(t, err), "an error names a field")
			return
		}
		got := p.Config()
		require.NoError(t, got.Validate(), "the effective config is valid: %+v", got)
		require.Positive(t, got.Limit, "limit")
		require.Equal(t, got.MaxWait > 0, got.MaxWaiters > 0, "a wait is bounded in time and in number, or there is none")
		require.True(t, p.TryAcquire(), "an accepted config lets one in")
		p.Release()
		require.Zero(t, p.InFlight())
	})
}
