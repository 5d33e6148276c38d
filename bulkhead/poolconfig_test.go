package bulkhead_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestPoolValidate(t *testing.T) {
	t.Parallel()
	codel := func(target, interval time.Duration) bulkhead.CoDel {
		return bulkhead.CoDel{Target: target, Interval: interval}
	}
	tests := []struct {
		name string
		cfg  bulkhead.Pool
		want []string
		says string // the other field of a contradiction
	}{
		{name: "zero"},
		{name: "all set", cfg: bulkhead.Pool{
			Name: "db", Workers: 5, MinWorkers: 5, IdleTimeout: time.Second, Queue: 7, MaxWait: time.Second,
			WhenFull: bulkhead.CallerRuns, CoDel: codel(5*time.Millisecond, 100*time.Millisecond),
		}},
		{name: "no queue", cfg: bulkhead.Pool{Queue: bulkhead.NoQueue}},
		{name: "negative workers", cfg: bulkhead.Pool{Workers: -1}, want: []string{"Workers"}},
		{name: "min above max", cfg: bulkhead.Pool{Workers: 5, MinWorkers: 6}, want: []string{"MinWorkers"}, says: "Workers (5)"},
		{name: "min above the default max", cfg: bulkhead.Pool{MinWorkers: 101}, want: []string{"MinWorkers"}, says: "Workers (100)"},
		{name: "negative min", cfg: bulkhead.Pool{MinWorkers: -1}, want: []string{"MinWorkers"}},
		{name: "negative idle timeout", cfg: bulkhead.Pool{IdleTimeout: -1}, want: []string{"IdleTimeout"}},
		{name: "queue below NoQueue", cfg: bulkhead.Pool{Queue: -2}, want: []string{"Queue"}},
		{name: "negative wait", cfg: bulkhead.Pool{MaxWait: -1}, want: []string{"MaxWait"}},
		{name: "wait without a queue", cfg: bulkhead.Pool{Queue: bulkhead.NoQueue, MaxWait: time.Second}, want: []string{"MaxWait"}, says: "NoQueue"},
		{name: "unknown when full", cfg: bulkhead.Pool{WhenFull: 2}, want: []string{"WhenFull"}},
		{name: "negative target", cfg: bulkhead.Pool{CoDel: codel(-1, 0)}, want: []string{"CoDel.Target"}},
		{name: "interval without target", cfg: bulkhead.Pool{CoDel: codel(0, 1)}, want: []string{"CoDel.Interval"}, says: "CoDel.Target"},
		{name: "negative interval", cfg: bulkhead.Pool{CoDel: codel(1, -1)}, want: []string{"CoDel.Interval"}},
		{name: "interval below target", cfg: bulkhead.Pool{CoDel: codel(2, 1)}, want: []string{"CoDel.Interval"}, says: "CoDel.Target"},
		{name: "target at the default wait", cfg: bulkhead.Pool{CoDel: codel(500*time.Millisecond, 0)}, want: []string{"CoDel.Target"}, says: "MaxWait (500ms)"},
		{name: "target above wait", cfg: bulkhead.Pool{MaxWait: time.Second, CoDel: codel(time.Minute, 0)}, want: []string{"CoDel.Target"}, says: "MaxWait (1s)"},
		{name: "shedding no queue", cfg: bulkhead.Pool{Queue: bulkhead.NoQueue, CoDel: codel(1, 0)}, want: []string{"CoDel.Target"}, says: "NoQueue"},
		{
			name: "everything", cfg: bulkhead.Pool{Workers: -1, MinWorkers: -1, IdleTimeout: -1, Queue: -2, MaxWait: -1, WhenFull: 9, CoDel: codel(-1, -1)},
			want: []string{"Workers", "MinWorkers", "IdleTimeout", "Queue", "MaxWait", "WhenFull", "CoDel.Target"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.want, fields(t, err), "faults of %+v: %v", tt.cfg, err)
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says, "a contradiction names both fields")
			}
			w, newErr := bulkhead.NewPool("", tt.cfg)
			assert.Equal(t, err, newErr, "NewPool says what Validate says")
			assert.Equal(t, err == nil, w != nil)

			part, buildErr := tt.cfg.BuildPolicy()
			assert.Equal(t, err, buildErr, "BuildPolicy says what Validate says")
			assert.Equal(t, err == nil, part.Runner != nil)
			assert.Nil(t, part.Gate, "a pool is no gate")
			assert.Equal(t, "pool", part.Kind)
		})
	}
}

func TestPoolConfigIsEffective(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		instance  string
		cfg, want bulkhead.Pool
	}{
		{name: "zero", want: bulkhead.Pool{Name: "pool", Workers: 100, IdleTimeout: 10 * time.Second, Queue: 100, MaxWait: 500 * time.Millisecond}},
		{
			name: "queue follows workers", instance: "db", cfg: bulkhead.Pool{Name: "x", Workers: 3},
			want: bulkhead.Pool{Name: "db", Workers: 3, IdleTimeout: 10 * time.Second, Queue: 3, MaxWait: 500 * time.Millisecond},
		},
		{
			name: "no queue", cfg: bulkhead.Pool{Workers: 3, Queue: bulkhead.NoQueue},
			want: bulkhead.Pool{Name: "pool", Workers: 3, IdleTimeout: 10 * time.Second, Queue: bulkhead.NoQueue},
		},
		{
			name: "codel", cfg: bulkhead.Pool{Workers: 3, CoDel: bulkhead.CoDel{Target: 5 * time.Millisecond}},
			want: bulkhead.Pool{
				Name: "pool", Workers: 3, IdleTimeout: 10 * time.Second, Queue: 3, MaxWait: 500 * time.Millisecond,
				CoDel: bulkhead.CoDel{Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, err := bulkhead.NewPool(tt.instance, tt.cfg)
			require.NoError(t, err)
			assert.Equal(t, tt.want, w.Config())
			require.NoError(t, w.Config().Validate(), "effective values are valid")
		})
	}
}

func TestPoolNamesTheFault(t *testing.T) {
	t.Parallel()
	_, err := policy.New("inventory", bulkhead.Pool{Name: "db", Workers: 2, MinWorkers: 3})
	require.EqualError(t, err, "inventory.db.MinWorkers: 3: want 0 to Workers (2)")
	_, err = policy.New("inventory", bulkhead.Pool{}, bulkhead.Pool{Name: "second"})
	require.ErrorContains(t, err, "runner", "a pipeline has one pool")
}

func TestWhenFullString(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "abort", bulkhead.Abort.String())
	assert.Equal(t, "caller_runs", bulkhead.CallerRuns.String())
	assert.Equal(t, "unknown", bulkhead.WhenFull(7).String())
}

func FuzzPool(f *testing.F) {
	f.Add(0, 0, int64(0), 0, int64(0), uint8(0), int64(0), int64(0))
	f.Add(3, 2, int64(time.Second), -1, int64(0), uint8(1), int64(0), int64(0))
	f.Add(math.MaxInt32, math.MaxInt32, int64(math.MaxInt64), math.MaxInt32, int64(math.MaxInt64), uint8(0), int64(math.MaxInt64-1), int64(math.MaxInt64))
	f.Add(math.MinInt, math.MaxInt, int64(math.MinInt64), math.MinInt, int64(-1), uint8(255), int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, workers, least int, idle int64, queue int, wait int64, full uint8, target, interval int64) {
		cfg := bulkhead.Pool{
			Workers: workers, MinWorkers: least, IdleTimeout: time.Duration(idle), Queue: queue, MaxWait: time.Duration(wait),
			WhenFull: bulkhead.WhenFull(full), CoDel: bulkhead.CoDel{Target: time.Duration(target), Interval: time.Duration(interval)},
		}
		synctest.Test(t, func(t *testing.T) {
			p, err := policy.New("x", cfg)
			if err != nil {
				_, ok := errors.AsType[*policy.ConfigError](err)
				assert.True(t, ok, "an error names a field: %v", err)
				return
			}
			w, err := bulkhead.NewPool("", cfg)
			require.NoError(t, err)
			got := w.Config()
			require.NoError(t, got.Validate(), "the effective config is valid: %+v", got)
			require.Positive(t, got.Workers)
			require.Equal(t, got.Queue > 0, got.MaxWait > 0, "a wait is bounded in time and in number, or there is none")
			_, err = policy.Do(t.Context(), p, hold(time.Millisecond))
			require.NoError(t, err, "an accepted config runs a call")
			require.NoError(t, p.Close(t.Context()))
		})
	})
}
