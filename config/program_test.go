package config_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// mode is a choice with names, as kinds of other packages have them.
type mode uint8

func (m mode) String() string {
	return map[mode]string{0: "local", 1: "allow", 2: "deny"}[min(m, 3)]
}

// shared are the settings of a kind of another package: those of redisconfig, in short.
type shared struct {
	Name, Client string
	Limits       []struct {
		Rule   string
		Rate   ratelimit.Rate
		Burst  int
		Limit  int
		Window time.Duration
		Keyed  bool
	}
	Settings struct {
		Timeout, MaxWait  time.Duration
		StandIn           mode
		Nodes, MaxWaiters int
	}
}

func sharedKind() config.Kind {
	return config.Kind{
		Name: "redis", Settings: shared{}, Descriptions: map[string]string{"Settings.Nodes": "how many"},
		Make: func(dependency string, settings any) (policy.Policy, error) {
			s := settings.(shared)
			if s.Client == "none" {
				return nil, nil
			}
			if s.Client != "limits" {
				return nil, errors.Join(&policy.ConfigError{Policy: "redis", Field: "Client", Value: s.Client, Want: "want limits"},
					&policy.ConfigError{Policy: "redis", Field: "Settings.Nodes", Want: "for " + dependency})
			}
			return ratelimit.TokenBucket{Name: s.Name, Rate: ratelimit.PerSecond(float64(len(s.Limits)))}, nil
		},
		About: func(settings any) config.About {
			s := settings.(shared)
			a := config.About{
				Timeout: s.Settings.Timeout, NoStandIn: s.Settings.StandIn == 2, Within: "Settings",
				MaxWait: s.Settings.MaxWait, MaxWaiters: s.Settings.MaxWaiters,
			}
			for range s.Limits {
				a.Limits = append(a.Limits, config.AboutLimit{Path: "Limits[0]", PerSecond: 10, Burst: 100, Bucket: true})
			}
			return a
		},
	}
}

func program() *config.Program { return &config.Program{Kinds: []config.Kind{sharedKind()}} }

func TestKindOfAnotherPackage(t *testing.T) {
	t.Parallel()
	text := `
defaults: {redis: {Client: limits}}
templates: {t: {policies: [redis: {Settings: {Nodes: 3}}]}}
dependencies:
  a: {like: t, policies: [redis: {Limits: [{Rate: 1/s}, {Rate: 2/s}]}]}
  b:
    policies:
      - all:
          Limits:
            - redis: {Client: limits, Limits: [{Rate: 1/s}]}
`
	s, err := config.Load(t.Context(), file(text), program(), config.Flags("a.redis.Settings.StandIn=allow"))
	require.NoError(t, err)
	assert.Equal(t, []policy.Policy{ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2)}}, s.Dependencies[0].Specs())
	assert.Equal(t, []policy.Policy{ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1)}}}}, s.Dependencies[1].Specs())
	assert.Equal(t, "Settings.StandIn", s.Dependencies[0].Policies[0].Values[4].Path)

	_, err = config.Load(t.Context(), file(text))
	require.ErrorContains(t, err, `there is no kind of policy "redis"`)

	_, err = config.Load(t.Context(), program(), file(`
templates: {t: {policies: [redis: {Limts: []}]}}
dependencies:
  a:
    policies:
      - redis:
          Client: limts
          Settings: {Nodes: 3, StandIn: denny}
  b:
    policies:
      - redis: {Client: none}
      - all: {Limits: [redis: {Client: other}]}
`))
	require.Error(t, err)
	for _, want := range []string{
		`b.yaml:2:36: t.redis.Limts: there is no setting "Limts": did you mean "Limits"?`,
		`b.yaml:7:19: a.redis.Client: limts: want limits`,
		`b.yaml:8:29: a.redis.Settings.Nodes: for a`,
		`b.yaml:8:41: a.redis.Settings.StandIn: there is no choice "denny": did you mean "deny"?`,
		`b.yaml:11:16: b.redis: the program has made no policy of it`,
		`b.yaml:12:40: b.all.Limits[0].Client: other: want limits`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestProgramRefuses(t *testing.T) {
	t.Parallel()
	_, err := config.Load(t.Context(), &config.Program{Kinds: []config.Kind{{}, {Name: "breaker", Settings: 3}, sharedKind(), sharedKind()}}, file(""))
	for _, want := range []string{"Kinds[0].Name", "Kinds[0].Settings", "Kinds[0].Make", "Kinds[1].Name", "Kinds[1].Settings", "Kinds[3].Name"} {
		assert.ErrorContains(t, err, want)
	}
}

// What a kind says about itself is what lint reckons with.
func TestLintOfAnotherKind(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), program(), file(`
dependencies:
  a:
    facts: {Quota: 10/s, CallerTimeout: 40ms}
    policies:
      - redis: {Client: limits, Limits: [{Burst: 100}], Settings: {Timeout: 50ms, StandIn: deny, MaxWait: 1s}}
      - bulkhead: {Limit: 10}
`))
	require.NoError(t, err)
	var found []string
	for _, f := range config.Lint(s) {
		found = append(found, f.Rule.ID+" "+f.Path)
	}
	assert.Equal(t, []string{
		"BW021 a.redis.Limits[0].Rate", "BW002 a.redis.Limits[0].Burst", "BW016 a.redis.Settings.Timeout",
		"BW016 a.redis.Settings.StandIn", "BW001 a.redis.Settings.MaxWait",
	}, found)
}

// A manager keeps what a kind has made as it keeps its own.
func TestManagerOfAnotherKind(t *testing.T) {
	t.Parallel()
	m := manage(t, one("redis: {Client: limits, Limits: [{Rate: 1/s}]}"), func(c *config.ManagerConfig) { c.Sources = append(c.Sources, program()) })
	assert.Equal(t, 1, m.passes(t, "a", 3))
	r, err := m.Reload(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	assert.False(t, r.Changed(), r)
	m.store.set(one("redis: {Client: limits, Limits: [{Rate: 1/s}, {Rate: 1/s}]}"), nil)
	r, err = m.Reload(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "a: ratelimit: resized", r.String())
}
