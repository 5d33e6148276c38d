package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

func file(text string) config.Source {
	return config.Bytes("b.yaml", config.LayerFile, []byte(text))
}

const inventory = `
defaults:
  breaker: {MinCalls: 5}
templates:
  shop:
    like: standard-http
    policies:
      - breaker:
          OpenFor: 2s
      - bulkhead: {Limit: 30}
dependencies:
  inventory:
    like: shop
    policies:
      - ratelimit: {Rate: 6000/s, Burst: 600, Initial: empty}
      - retry: {MaxAttempts: 3, Jitter: none, Budget: {Ratio: 10%}}
      - timeout: off
      - breaker: {Window: 1s}
  plain:
    policies:
      - bulkhead
      - lanes:
          Lanes:
            - {Name: realtime, Rate: 6/s, Burst: 8}
            - {Name: batch, Rate: 4/s, Burst: 10}
          Total: {Limit: 10, Window: 1s}
      - all:
          Limits:
            - ratelimit: {Name: global, Rate: 100/s}
            - keyed: {Name: user, Rate: 6/min, MaxKeys: 10k}
`

func TestLoad(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), file(inventory))
	require.NoError(t, err)
	require.Len(t, s.Dependencies, 2)
	inv := s.Dependencies[0]
	assert.Equal(t, []string{"shop", "standard-http"}, inv.Like)
	assert.ElementsMatch(t, []policy.Policy{
		retry.Config{MaxAttempts: 3, BaseDelay: 50 * time.Millisecond, MaxDelay: 500 * time.Millisecond, Jitter: retry.NoJitter, Budget: retry.BudgetConfig{Ratio: 0.1, MinPerSecond: 1}},
		bulkhead.Semaphore{Limit: 30},
		breaker.Config{FailureRatio: 0.5, SlowAfter: 800 * time.Millisecond, SlowRatio: 0.5, Window: time.Second, MinCalls: 20, OpenFor: 2 * time.Second},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 600, Initial: ratelimit.StartEmpty},
	}, inv.Specs())
	assert.ElementsMatch(t, []policy.Policy{
		bulkhead.Semaphore{},
		ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{{Name: "realtime", Rate: ratelimit.PerSecond(6), Burst: 8}, {Name: "batch", Rate: ratelimit.PerSecond(4), Burst: 10}},
			Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
		},
		ratelimit.All{Limits: []policy.Policy{
			ratelimit.TokenBucket{Name: "global", Rate: ratelimit.PerSecond(100)},
			ratelimit.Keyed{Name: "user", Rate: ratelimit.PerMinute(6), MaxKeys: 10_000},
		}},
	}, s.Dependencies[1].Specs())
	for _, d := range s.Dependencies {
		_, err := policy.New(d.Name, d.Specs()...)
		require.NoError(t, err)
	}
}

// A default is for a kind, wherever it stands; what a profile says is more special.
func TestLayers(t *testing.T) {
	t.Parallel()
	program := config.Bytes("program", config.LayerDefaults, []byte("defaults: {breaker: {OpenFor: 9s, MinCalls: 7, Probes: 4}}"))
	env := config.Environment("BW_", []string{"BW_INVENTORY__BREAKER__OPENFOR=3s", "BW_INVENTORY__RETRY__BUDGET__RATIO=0.3", "OTHER=1"})
	flags := config.Flags("inventory.breaker.OpenFor=4s")
	s, err := config.Load(t.Context(), config.Pinned("inventory.bulkhead.Limit=40"), flags, env, file(inventory), program)
	require.NoError(t, err)
	got := map[string]policy.Policy{}
	origins := map[string]string{}
	for _, p := range s.Dependencies[0].Policies {
		got[p.Name] = p.Spec
		for _, v := range p.Values {
			origins[p.Name+"."+v.Path] = v.Origin.Layer.String() + " " + v.Origin.String()
		}
	}
	b, ok := got["breaker"].(breaker.Config)
	require.True(t, ok)
	assert.Equal(t, 4*time.Second, b.OpenFor)
	assert.Equal(t, 20, b.MinCalls)
	assert.Equal(t, 4, b.Probes)
	assert.Equal(t, bulkhead.Semaphore{Limit: 40}, got["bulkhead"])
	assert.Equal(t, "flags flag inventory.breaker.OpenFor", origins["breaker.OpenFor"])
	assert.Equal(t, "environment BW_INVENTORY__RETRY__BUDGET__RATIO", origins["retry.Budget.Ratio"])
	assert.Equal(t, "built-in profiles.yaml:11:33", origins["breaker.FailureRatio"])
	assert.Equal(t, "defaults program:1:56", origins["breaker.Probes"])
	assert.Equal(t, "file b.yaml:18:27", origins["breaker.Window"])
}

func TestFaults(t *testing.T) {
	t.Parallel()
	_, err := config.Load(t.Context(), file(`
dependencis: {}
templates:
  a: {like: b}
  b: {like: a}
dependencies:
  one:
    policies:
      - breaker: {OpenFro: 5s, FailureRatio: 2, Window: 10}
      - braker: {}
      - bulkhead: {Limit: many, Limit: 3}
  two:
    like: standrd-http
    polices: []
  three:
    like: a
    policies:
      - ratelimit: {Rate: 100, Burst: 1.5}
      - ratelimit: {Rate: 1/s}
      - retry: {Jitter: ful, Budget: {Ratio: 3}}
      - pool: {Workers: -3}
`), config.Flags("one.breaker.OpnFor=3s", "four.breaker.OpenFor=1s", "nonsense"))
	require.Error(t, err)
	want := []string{
		`b.yaml:2:1: there is no section "dependencis": did you mean "dependencies"?`,
		`b.yaml:9:19: one.breaker.OpenFro: there is no setting "OpenFro": did you mean "OpenFor"?`,
		`b.yaml:9:57: one.breaker.Window: 10: want a duration with a unit, such as 500ms, 10s or 1m30s`,
		`b.yaml:10:9: one: there is no kind of policy "braker": did you mean "breaker"?`,
		`b.yaml:11:33: Limit is here for the second time, first in line 11`,
		`b.yaml:13:11: two.like: there is no template or profile "standrd-http": did you mean "standard-http"?`,
		`b.yaml:14:5: two.polices: there is no setting "polices": did you mean "policies"?`,
		`a is like itself`,
		`one.breaker.FailureRatio: 2: `,
		`flag one.breaker.OpnFor: one.breaker.OpnFor: there is no setting of one.breaker "OpnFor": did you mean "OpenFor"?`,
		`there is no dependency "four"`,
		`three.ratelimit.Rate: 100: want a number of calls per time`,
		`three.retry.Jitter: there is no choice "ful": did you mean "full"?`,
		`flag nonsense: want dependency.policy.Field=value`,
	}
	for _, w := range want {
		assert.Contains(t, err.Error(), w)
	}
	t.Log("\n" + err.Error())
	assert.NotContains(t, strings.ToLower(err.Error()), "panic")
}
