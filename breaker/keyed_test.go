package breaker_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// five opens the breaker of a key after five failures, and closes it after one probe.
var five = breaker.Config{FailureRatio: breaker.Off, ConsecutiveFailures: 5, Probes: 1}

func newKeyed(t *testing.T, cfg breaker.Keyed) *breaker.KeyedBreaker {
	t.Helper()
	k, err := breaker.NewKeyed("", cfg)
	require.NoError(t, err)
	return k
}

// callKey calls n times with a key; the function returns err.
func callKey(t *testing.T, p *policy.Pipeline, key string, n int, err error) (last error) {
	t.Helper()
	ctx := policy.WithCall(t.Context(), policy.Call{Key: key})
	for range n {
		_, last = policy.Do(ctx, p, func(context.Context) (int, error) { return 1, err })
	}
	return last
}

// failKey makes n calls with a key that fail, if they are let through.
func failKey(t *testing.T, p *policy.Pipeline, key string, n int) {
	t.Helper()
	require.Error(t, callKey(t, p, key, n, errDown))
}

func TestKeyedValidate(t *testing.T) {
	t.Parallel()
	type cfg = breaker.Keyed
	tests := []struct {
		name   string
		cfg    cfg
		fields []string
	}{
		{"zero", cfg{}, nil},
		{"largest", cfg{MaxKeys: 100_000, TTL: math.MaxInt64, MaxOpenShare: 1}, nil},
		{"smallest", cfg{Config: breaker.Config{LastCalls: 10}, MaxKeys: 1, TTL: ms, MaxOpenShare: math.SmallestNonzeroFloat64}, nil},
		{"beyond", cfg{MaxKeys: 100_001, TTL: ms - 1, MaxOpenShare: math.Nextafter(1, 2)}, []string{"MaxKeys", "TTL", "MaxOpenShare"}},
		{"below", cfg{MaxKeys: -1, TTL: -1, MaxOpenShare: -0.1}, []string{"MaxKeys", "TTL", "MaxOpenShare"}},
		{"NaN", cfg{MaxOpenShare: math.NaN()}, []string{"MaxOpenShare"}},
		{"TTL shorter than the window", cfg{TTL: 9 * time.Second}, []string{"TTL"}},
		{"TTL as long as the window", cfg{TTL: 10 * time.Second}, nil},
		{"long window", cfg{Config: breaker.Config{Window: time.Hour}}, nil},
		{"of the breakers", cfg{Config: breaker.Config{FailureRatio: 50}, MaxKeys: -1}, []string{"FailureRatio", "MaxKeys"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.fields, fieldsOf(t, err, "keyed_breaker"))
			k, newErr := breaker.NewKeyed("x", tt.cfg)
			assert.Equal(t, err == nil, newErr == nil)
			assert.Equal(t, err == nil, k != nil)
			if k != nil {
				require.NoError(t, k.Config().Validate(), "effective values are valid ones")
			}
		})
	}
	_, err := policy.New("inventory", breaker.Keyed{Config: breaker.Config{Name: "hosts"}, MaxKeys: -1})
	require.Error(t, err)
	assert.Equal(t, "inventory.hosts.MaxKeys: -1: want from 1 to 100000 (0 means 1000)", err.Error())
}

func TestKeyedConfig(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, breaker.Keyed{})
	eff := k.Config()
	assert.Equal(t, "keyed_breaker", eff.Name)
	assert.InDelta(t, 0.5, eff.FailureRatio, 0)
	assert.Equal(t, 1000, eff.MaxKeys)
	assert.Equal(t, 10*time.Minute, eff.TTL)
	assert.InDelta(t, 1, eff.MaxOpenShare, 0)
	assert.Equal(t, time.Hour, newKeyed(t, breaker.Keyed{Config: breaker.Config{Window: time.Hour}}).Config().TTL)

	p := newPipeline(t, breaker.Keyed{Config: breaker.Config{MinCalls: 1}})
	assert.Equal(t, []string{"inventory.keyed_breaker: with MinCalls 1 and FailureRatio 0.5 a single failed call opens the breaker; raise MinCalls"}, p.Warnings())

	one, err := breaker.Keyed{Config: breaker.Config{Name: "hosts", Shadow: true}}.BuildPolicy()
	require.NoError(t, err)
	two, err := breaker.Keyed{}.BuildPolicy()
	require.NoError(t, err)
	assert.Equal(t, "keyed_breaker", one.Kind)
	assert.Equal(t, "hosts", one.Name)
	assert.Equal(t, policy.PlaceBreaker, one.Place)
	assert.True(t, one.Shadow)
	assert.NotSame(t, one.Gate, two.Gate)
	part, err := k.BuildPolicy()
	require.NoError(t, err)
	assert.Same(t, k, part.Gate)
}

func TestKeyedBreakersAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var lines []string
		cfg := five
		cfg.OnStateChange = func(c breaker.StateChange) {
			lines = append(lines, fmt.Sprintf("%s %s %d: %s -> %s (%s)", c.Name, c.Key, c.Generation, c.From, c.To, c.Why))
		}
		var events []policy.Event
		k := newKeyed(t, breaker.Keyed{Config: cfg})
		var reg policy.Registry
		p, err := reg.New("inventory", k, policy.Observe(policy.ObserverFunc(func(e policy.Event) {
			if e.Kind == policy.EventStateChange {
				events = append(events, e)
			}
		})))
		require.NoError(t, err)
		look := func() policy.BreakerSnapshot { return *snapshot(t, p, "keyed_breaker").Breaker }
		assert.Equal(t, policy.BreakerSnapshot{
			State: "closed", Since: begin, Generation: 1, Why: breaker.WhyStart, Share: 1, ConsecutiveThreshold: 5,
			MinCalls: 20, MaxProbes: 1, MaxKeys: 1000, MaxOpenKeys: 1,
		}, look(), "from the start")

		time.Sleep(time.Second)
		require.NoError(t, callKey(t, p, "a", 10, nil))
		require.NoError(t, call(t, p, nil), "a call without a key")
		require.ErrorIs(t, callKey(t, p, "b", 4, errDown), errDown)
		time.Sleep(time.Second)
		require.ErrorIs(t, callKey(t, p, "b", 1, errDown), errDown)
		require.ErrorIs(t, callKey(t, p, "c", 3, errDown), errDown)
		requireRefused(t, callKey(t, p, "b", 1, nil), policy.ReasonOpen, 5*time.Second)
		require.NoError(t, callKey(t, p, "a", 1, nil), "another key")
		time.Sleep(time.Second)
		s := look()
		assert.Equal(t, policy.BreakerSnapshot{
			State: "open", Since: begin.Add(2 * time.Second), Generation: 2, Why: breaker.WhyConsecutiveFailures,
			RetryAfter: 4 * time.Second, Share: 0.75, Calls: 20, Failures: 8, FailureRatio: 0.4, Consecutive: 3,
			ConsecutiveThreshold: 5, MinCalls: 20, MaxProbes: 1, Opened: 1, Keys: 4, MaxKeys: 1000, OpenKeys: 1, MaxOpenKeys: 4,
		}, s)
		_, why := reg.Ready()
		assert.Equal(t, "inventory: keyed_breaker is open for 1s because of consecutive_failures; 1 of 4 keys are open; next probe in 4s", why)

		// A second one is open, for less long.
		require.ErrorIs(t, callKey(t, p, "c", 2, errDown), errDown)
		s = look()
		assert.Equal(t, begin.Add(2*time.Second), s.Since)
		assert.Equal(t, 4*time.Second, s.RetryAfter)
		assert.Equal(t, 2, s.OpenKeys)
		var keys []string
		for key, one := range k.All(time.Now()) {
			keys = append(keys, key+" "+one.State)
		}
		assert.Equal(t, []string{"c open", "b open"}, keys[:2], "what is not closed comes first")
		assert.ElementsMatch(t, []string{"a closed", " closed"}, keys[2:])
		for key := range k.All(time.Now()) {
			assert.Equal(t, "c", key)
			break
		}

		time.Sleep(4 * time.Second)
		require.NoError(t, callKey(t, p, "b", 1, nil))
		time.Sleep(time.Second)
		s = look()
		assert.Equal(t, "half_open", s.State, "b has closed, and the time of c has passed")
		assert.InDelta(t, 0.75, s.Share, 1e-9)
		require.NoError(t, callKey(t, p, "c", 1, nil))
		assert.Equal(t, "closed", look().State)
		assert.Equal(t, uint64(2), look().Opened)

		assert.Equal(t, []string{
			"keyed_breaker b 2: closed -> open (consecutive_failures)",
			"keyed_breaker c 2: closed -> open (consecutive_failures)",
			"keyed_breaker b 3: open -> half_open (open_passed)",
			"keyed_breaker b 4: half_open -> closed (probes_succeeded)",
			"keyed_breaker c 3: open -> half_open (open_passed)",
			"keyed_breaker c 4: half_open -> closed (probes_succeeded)",
		}, lines)
		require.Len(t, events, len(lines))
		assert.Equal(t, "b", events[0].Change.Key)
		assert.Equal(t, "keyed_breaker", events[0].Policy)

		assert.True(t, k.Remove("b"))
		assert.False(t, k.Remove("b"))
		assert.Equal(t, 3, look().Keys)
		assert.Equal(t, uint64(1), look().Evicted)
		assert.Equal(t, uint64(2), look().Opened, "a counter does not fall")
	})
}

// Hystrix#1737, reva#4509: state for each key lived for ever.
//
// Choice: when no key is closed, the one that was used least recently goes.
func TestCaseB69KeysAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, breaker.Keyed{Config: five, MaxKeys: 1000, TTL: 10 * time.Minute})
		p := newPipeline(t, k)
		look := func() policy.BreakerSnapshot { return *snapshot(t, p, "keyed_breaker").Breaker }
		for i := range 10 {
			failKey(t, p, fmt.Sprint("down", i), 5)
		}
		time.Sleep(5 * time.Second) // they are half-open
		failKey(t, p, "probed", 5)
		const keys = 100_000
		for i := range keys {
			require.NoError(t, callKey(t, p, fmt.Sprint("key", i), 1, nil))
			if i%100 == 0 {
				require.NoError(t, callKey(t, p, "hot", 1, nil))
			}
			if i%10_000 == 0 {
				require.LessOrEqual(t, look().Keys, 1000)
			}
		}
		s := look()
		assert.Equal(t, 1000, s.Keys)
		assert.Equal(t, 11, s.OpenKeys)
		assert.Equal(t, uint64(keys+12-1000), s.Evicted, "among them none that is open, and none that is in use")
		for i := range 10 {
			assert.Equal(t, breaker.HalfOpen, k.Get(fmt.Sprint("down", i)).State())
		}
		assert.Equal(t, breaker.Open, k.Get("probed").State())

		time.Sleep(11 * time.Minute)
		for range 100 {
			require.NoError(t, callKey(t, p, "hot", 1, nil))
			time.Sleep(10 * time.Second)
		}
		s = look()
		assert.Equal(t, 1, s.Keys, "idle keys leave, the open ones too")
		assert.Zero(t, s.OpenKeys)
	})
	t.Run("open for longer than TTL", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			cfg := five
			cfg.OpenFor = time.Hour
			k := newKeyed(t, breaker.Keyed{Config: cfg, TTL: 10 * time.Minute})
			p := newPipeline(t, k)
			failKey(t, p, "down", 5)
			k.Get("forced").ForceOpen("ann", 0)
			k.Get("watched").Observe("ann", 0)
			use := func() {
				time.Sleep(time.Second)
				require.NoError(t, callKey(t, p, "other", 1, nil))
			}
			time.Sleep(30 * time.Minute)
			use()
			assert.Equal(t, 4, snapshot(t, p, "keyed_breaker").Breaker.Keys)
			time.Sleep(45 * time.Minute)
			use()
			var keys []string
			for key := range k.All(time.Now()) {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			assert.Equal(t, []string{"forced", "other", "watched"}, keys, "a command is not forgotten")
		})
	})
	t.Run("all of them are open", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := newKeyed(t, breaker.Keyed{Config: five, MaxKeys: 3})
			p := newPipeline(t, k)
			k.Get("forced").ForceOpen("ann", 0)
			failKey(t, p, "a", 5)
			failKey(t, p, "b", 5)
			require.NoError(t, callKey(t, p, "c", 1, nil))
			var keys []string
			for key := range k.All(time.Now()) {
				keys = append(keys, key)
			}
			assert.Equal(t, []string{"b", "forced", "c"}, keys)
			k.Get("b").ForceClosed("ann", 0)
			k.Get("c").Observe("ann", 0)
			require.NoError(t, callKey(t, p, "d", 1, nil))
			assert.Equal(t, 3, snapshot(t, p, "keyed_breaker").Breaker.Keys, "commands go when there is nothing else")
		})
	})
}

// The key that is used is the one that stays, also when it was the first.
func TestKeyedForgetsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, breaker.Keyed{Config: five, MaxKeys: 4})
		p := newPipeline(t, k)
		for _, key := range []string{"a", "b", "c", "d", "a", "e", "b", "a", "f"} {
			require.NoError(t, callKey(t, p, key, 1, nil))
			time.Sleep(time.Minute)
		}
		var keys []string
		for key := range k.All(time.Now()) {
			keys = append(keys, key)
		}
		// e took the place of b, b that of c, f that of d.
		assert.Equal(t, []string{"f", "a", "b", "e"}, keys)
	})
}

// envoy#26877, #27066: the cap was looked at before the ejection, and exceeded by it.
//
// Choice: one key may always be open.
func TestCaseB70NoMoreKeysOpenThanAllowed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		keys  int
		share float64
		want  int
	}{
		{3, 0.5, 1}, {3, 0.67, 2}, {10, 0.25, 2}, {4, 0.5, 2}, {2, 0.1, 1}, {10, 0.3, 3}, {10, 0.7, 7}, {7, 0, 7}, {1, 0.01, 1}, {100, 0.29, 29},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d keys, %v", tt.keys, tt.share), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKeyed(t, breaker.Keyed{Config: five, MaxOpenShare: tt.share})
				p := newPipeline(t, k)
				look := func() policy.BreakerSnapshot { return *snapshot(t, p, "keyed_breaker").Breaker }
				key := func(i int) string { return fmt.Sprint("host", i) }
				for i := range tt.keys {
					require.NoError(t, callKey(t, p, key(i), 1, nil))
				}
				for i := range tt.keys {
					failKey(t, p, key(i), 20)
					require.LessOrEqual(t, look().OpenKeys, tt.want)
				}
				s := look()
				assert.Equal(t, tt.want, s.OpenKeys)
				assert.Equal(t, tt.want, s.MaxOpenKeys)
				if tt.want == tt.keys {
					return
				}
				assert.Equal(t, uint64(16*(tt.keys-tt.want)), s.Capped)
				last := key(tt.keys - 1)
				require.ErrorIs(t, callKey(t, p, last, 1, errDown), errDown, "its calls run")

				// One host is well again: that lets another one open.
				time.Sleep(5 * time.Second)
				require.ErrorIs(t, callKey(t, p, last, 1, errDown), errDown, "a half-open one counts as open")
				require.NoError(t, callKey(t, p, key(0), 1, nil))
				require.Equal(t, tt.want-1, look().OpenKeys)
				require.ErrorIs(t, callKey(t, p, last, 1, errDown), errDown)
				requireRefused(t, callKey(t, p, last, 1, nil), policy.ReasonOpen, 5*time.Second)
				require.Equal(t, tt.want, look().OpenKeys)

				// And it takes the full number of failures for the first to open again.
				k.Get(last).Reset()
				for n := range 5 {
					require.Equal(t, breaker.Closed, k.Get(key(0)).State(), "after %d failures", n)
					failKey(t, p, key(0), 1)
				}
				require.Equal(t, breaker.Open, k.Get(key(0)).State())

				// A host that is taken away makes room as well, if enough of them are left.
				require.True(t, k.Remove(key(0)))
				require.Equal(t, tt.want-1, look().OpenKeys)
				k.Get(last).ForceOpen("ann", 0)
				assert.Equal(t, tt.want, look().OpenKeys, "a command is not held back, and counts")
			})
		})
	}
}

func TestKeyedGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		k := newKeyed(t, breaker.Keyed{Config: five})
		p := newPipeline(t, k, waiting{&asked})
		failKey(t, p, "a", 5)
		requireRefused(t, callKey(t, p, "a", 1, nil), policy.ReasonOpen, 5*time.Second)
		assert.Equal(t, 5, asked, "Peek keeps it from waiting")

		// A body that fails, and a call that was queued.
		ctx := policy.WithCall(t.Context(), policy.Call{Key: "b"})
		for range 5 {
			h, err := p.Enter(ctx)
			require.NoError(t, err)
			require.True(t, h.Settle(policy.Success, 0))
			require.True(t, h.Amend(policy.Failure))
			h.Release()
		}
		assert.Equal(t, breaker.Open, k.Get("b").State())
		h, err := p.Enter(policy.WithCall(t.Context(), policy.Call{Key: "gone"}))
		require.NoError(t, err)
		require.True(t, h.Settle(policy.Success, 0))
		k.Remove("gone")
		require.True(t, h.Amend(policy.Failure), "of which nothing is left")
		h.Release()

		p = newPipeline(t, k, queued{func() { failKey(t, newPipeline(t, k), "c", 5) }})
		requireRefused(t, callKey(t, p, "c", 1, nil), policy.ReasonOpen, 5*time.Second)
		p = newPipeline(t, k, queued{func() {}})
		require.NoError(t, callKey(t, p, "d", 1, nil))

		// A key that is forgotten while its call runs.
		p = newPipeline(t, k)
		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Key: "e"}), p, func(context.Context) (int, error) {
			k.Remove("e")
			return 0, errDown
		})
		require.ErrorIs(t, err, errDown)
		assert.Zero(t, k.Get("e").Snapshot(time.Now()).Breaker.Calls)

		// A breaker that was kept although its key was forgotten does not open, and
		// is no longer counted.
		old := k.Get("old")
		permits := make([]breaker.Permit, 5)
		for i := range permits {
			permits[i], err = old.Acquire()
			require.NoError(t, err)
		}
		before := *snapshot(t, p, "keyed_breaker").Breaker
		require.True(t, k.Remove("old"))
		for i := range permits {
			require.True(t, permits[i].Done(policy.Failure))
		}
		assert.Equal(t, breaker.Closed, old.State())
		old.ForceOpen("ann", 0)
		after := *snapshot(t, p, "keyed_breaker").Breaker
		assert.Equal(t, before.OpenKeys, after.OpenKeys)
		assert.Equal(t, before.Keys-1, after.Keys)
		assert.Equal(t, before.Capped, after.Capped)

		// Commands for one key, and for one that only watches.
		k.Get("f").Observe("ann", 0)
		for range 20 {
			require.ErrorIs(t, callKey(t, p, "f", 1, errDown), errDown)
		}
		assert.Equal(t, breaker.Open, k.Get("f").State())
		assert.Equal(t, uint64(15), snapshot(t, p, "keyed_breaker").Breaker.Spared)
		k.Remove("f")
		assert.Equal(t, uint64(15), snapshot(t, p, "keyed_breaker").Breaker.Spared, "a counter does not fall")

		p = newPipeline(t, breaker.Keyed{Config: breaker.Config{FailureRatio: breaker.Off, FailureCount: 5, Shadow: true}})
		for range 20 {
			require.ErrorIs(t, callKey(t, p, "a", 1, errDown), errDown)
		}
		assert.Equal(t, uint64(15), snapshot(t, p, "keyed_breaker").Rejected[policy.ReasonOpen])
	})
}
