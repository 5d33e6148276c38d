package stale_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	weight := func(string, int) uint32 { return 1 }
	tests := []struct {
		name string
		cfg  stale.Config[int]
		want string
	}{
		{name: "zero"},
		{name: "off", cfg: stale.Config[int]{Jitter: -1, Wait: -1, RetryIn: -1, NegativeFor: -1}},
		{name: "weight", cfg: stale.Config[int]{MaxWeight: 10, Weight: weight}},
		{name: "Fresh", cfg: stale.Config[int]{Fresh: -1}, want: "stale.Fresh: -1ns: at least 0"},
		{name: "MaxAge", cfg: stale.Config[int]{MaxAge: -1}, want: "stale.MaxAge: -1ns: at least 0 (0 means ten times Fresh); a value is never served forever"},
		{name: "MaxAge below the default", cfg: stale.Config[int]{MaxAge: time.Second}, want: "stale.MaxAge: 1s: at least Fresh"},
		{name: "Jitter", cfg: stale.Config[int]{Jitter: 1}, want: "stale.Jitter: 1: below 1"},
		{name: "Jitter NaN", cfg: stale.Config[int]{Jitter: math.NaN()}, want: "stale.Jitter: NaN"},
		{name: "LoadTimeout", cfg: stale.Config[int]{LoadTimeout: -1}, want: "stale.LoadTimeout"},
		{name: "MaxRefreshes", cfg: stale.Config[int]{MaxRefreshes: -1}, want: "stale.MaxRefreshes"},
		{name: "MaxEntries", cfg: stale.Config[int]{MaxEntries: -1}, want: "stale.MaxEntries"},
		{name: "two bounds", cfg: stale.Config[int]{MaxEntries: 1, MaxWeight: 1, Weight: weight}, want: "stale.MaxEntries: 1: want it zero beside a MaxWeight"},
		{name: "no weights", cfg: stale.Config[int]{MaxWeight: 1}, want: "stale.Weight: want both"},
		{name: "weights alone", cfg: stale.Config[int]{Weight: weight}, want: "stale.Weight: want both"},
		{name: "Name", cfg: stale.Config[int]{Name: "a\n"}, want: "Name"},
		{name: "Otherwise", cfg: stale.Config[int]{Otherwise: fallback.Func[int](nil)}, want: "fallback.Func: want a function"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("inventory")
			require.NoError(t, err)
			c, err := stale.New(p, tt.cfg)
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, c.Close(t.Context()))
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.Nil(t, c)
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg, want stale.Config[int]
	}{
		{want: stale.Config[int]{
			Name: "stale", Fresh: time.Minute, MaxAge: 10 * time.Minute, Jitter: 0.1, RetryIn: time.Second,
			LoadTimeout: 10 * time.Second, MaxRefreshes: 64, MaxEntries: 10_000, NegativeFor: 5 * time.Second,
		}},
		{cfg: stale.Config[int]{Fresh: math.MaxInt64, Jitter: -1, RetryIn: -1, Wait: -1}, want: stale.Config[int]{
			Name: "stale", Fresh: math.MaxInt64, MaxAge: math.MaxInt64, Wait: -1,
			LoadTimeout: 10 * time.Second, MaxRefreshes: 64, MaxEntries: 10_000, NegativeFor: 5 * time.Second,
		}},
		{cfg: stale.Config[int]{Fresh: time.Second}, want: stale.Config[int]{
			Name: "stale", Fresh: time.Second, MaxAge: 10 * time.Second, Jitter: 0.1, RetryIn: time.Second,
			LoadTimeout: 10 * time.Second, MaxRefreshes: 64, MaxEntries: 10_000, NegativeFor: time.Second,
		}},
	} {
		c, err := stale.New(nil, tt.cfg)
		require.NoError(t, err)
		got := c.Config()
		got.When = nil
		assert.Equal(t, tt.want, got)
		require.NoError(t, c.Close(t.Context()))
	}
}

func TestTwoCachesOfOnePipeline(t *testing.T) {
	t.Parallel()
	p, err := policy.New("inventory")
	require.NoError(t, err)
	_, err = stale.New(p, stale.Config[int]{})
	require.NoError(t, err)
	_, err = stale.New(p, stale.Config[string]{})
	require.ErrorContains(t, err, `inventory.stale.Name: "stale": another of this name`)
	_, err = stale.New(p, stale.Config[string]{Name: "names"})
	require.NoError(t, err)
	assert.Len(t, p.Snapshot().Policies, 2)
	require.NoError(t, p.Close(t.Context()))
}
