package redisconfig_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/goccy/go-yaml"
	"github.com/redis/go-redis/v9"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/redisconfig"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

func file(text string) config.Source {
	return config.Bytes("b.yaml", config.LayerFile, []byte(text))
}

// client returns one for a server that is away.
func client(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c := redislimit.NewClient(&redis.UniversalOptions{Addrs: []string{addr}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func program(clients map[string]redis.UniversalClient) *config.Program {
	return &config.Program{Kinds: []config.Kind{redisconfig.Kind(clients)}}
}

const full = `
dependencies:
  a:
    policies:
      - redis:
          Name: fleet
          Client: limits
          Prefix: shop
          Shards: 4
          Limits:
            - {Name: burst, Rate: 6000/s, Burst: 600}
            - {Name: user, Rule: fixed_window, Limit: 10, Window: 60s, Keyed: true}
            - {Name: slide, Rule: sliding_window, Limit: 1k, Window: 1s}
            - {Name: log, Rule: sliding_log, Limit: 100, Window: 1m}
          Settings:
            {Timeout: 20ms, StandIn: allow, Nodes: 4, MaxKeys: 5k, MaxWait: 100ms, MaxWaiters: 50, Shadow: true}
  b:
    policies:
      - redis: {Limits: [{Rate: 10/s}], Settings: {LeaseFor: 100ms, MaxLease: 2, Heartbeat: 2s}}
  c{}:
    policies:
      - redis: {Limits: [{Rate: 10/s}], Settings: {LocalOnly: true}}
`

func TestEverySetting(t *testing.T) {
	t.Parallel()
	c := client(t, "127.0.0.1:1")
	s, err := config.Load(t.Context(), file(full), program(map[string]redis.UniversalClient{"limits": c}))
	require.NoError(t, err)
	require.Len(t, s.Dependencies, 3)
	assert.Equal(t, []policy.Policy{redislimit.Config{
		Name: "fleet", Client: c, Prefix: "shop", Shards: 4,
		Limits: []redislimit.Limit{
			{Name: "burst", Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 600}},
			{Name: "user", Rule: redislimit.FixedWindow{Limit: 10, Window: time.Minute}, Keyed: true},
			{Name: "slide", Rule: redislimit.SlidingWindow{Limit: 1000, Window: time.Second}},
			{Name: "log", Rule: redislimit.SlidingLog{Limit: 100, Window: time.Minute}},
		},
		Settings: sharedlimit.Settings{
			Timeout: 20 * time.Millisecond, StandIn: sharedlimit.LetIn, Nodes: 4, MaxKeys: 5000,
			MaxWait: 100 * time.Millisecond, MaxWaiters: 50, Shadow: true,
		},
	}}, s.Dependencies[0].Specs())
	assert.Equal(t, []policy.Policy{redislimit.Config{
		Client: c, Prefix: "breakwater:b", Limits: []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(10)}}},
		Settings: sharedlimit.Settings{LeaseFor: 100 * time.Millisecond, MaxLease: 2, Heartbeat: 2 * time.Second},
	}}, s.Dependencies[1].Specs(), "the only client, and keys of its own")
	other, ok := s.Dependencies[2].Policies[0].Spec.(redislimit.Config)
	require.True(t, ok)
	assert.Equal(t, "breakwater:c__", other.Prefix)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	load := func(text string, clients ...string) error {
		all := map[string]redis.UniversalClient{}
		for _, name := range clients {
			all[name] = client(t, "127.0.0.1:1")
		}
		_, err := config.Load(t.Context(), file(text), program(all))
		return err
	}
	err := load(`
dependencies:
  a:
    policies:
      - redis:
          Client: limts
          Shards: 2
          Limits:
            - {Rate: 0/s, Limit: 3}
            - {Name: b, Rule: fixed_windw, Limit: 1}
            - {Name: c, Rule: sliding_log, Limit: 0, Window: 1s, Rate: 1/s}
            - {Name: d, Rule: fixed_window, Limit: 10, Window: 1s, Burst: 3}
            - {Name: e, Rate: 10/s, Window: 1s}
          Settings: {Timeout: 2m, StandIn: refuse}
`, "limits", "others")
	for _, want := range []string{
		`b.yaml:6:19: a.redis.Client: there is no client "limts": did you mean "limits"?`,
		`b.yaml:9:22: a.redis.Limits[0].Rate.Tokens: 0: want a finite number above 0`,
		`b.yaml:9:34: a.redis.Limits[0].Limit: 3: want none`,
		`b.yaml:10:31: a.redis.Limits[1].Rule: there is no choice "fixed_windw": did you mean "fixed_window"?`,
		`b.yaml:11:51: a.redis.Limits[2].Limit: 0: want 1 to 100000`,
		`b.yaml:11:72: a.redis.Limits[2].Rate: 1/s: want none: it belongs to the Rule token_bucket`,
		`b.yaml:12:75: a.redis.Limits[3].Burst: 3: want none`,
		`b.yaml:13:45: a.redis.Limits[4].Window: 1s: want none`,
		`b.yaml:14:31: a.redis.Settings.Timeout: 2m0s: want a positive duration`,
		`b.yaml:14:44: a.redis.Settings.StandIn: there is no choice "refuse": want one of local, allow, deny`,
	} {
		assert.ErrorContains(t, err, want)
	}
	const plain = "dependencies: {a: {policies: [redis: {Limits: [{Rate: 1/s}]}]}}"
	require.ErrorContains(t, load(plain), "the program has handed over no clients")
	require.ErrorContains(t, load(plain, "x", "y"), "want the name of a client: one of x, y")
	require.NoError(t, load(plain, "x"))
	require.ErrorContains(t, load("dependencies: {a: {policies: [redis: {}]}}", "x"), "want 1 to 8 limits")
}

// A tool has no clients: it can look at the policies, and make no pipelines of them.
func TestWithoutTheProgram(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), file(full), program(nil))
	require.NoError(t, err)
	_, err = policy.New("a", s.Dependencies[0].Specs()...)
	require.ErrorContains(t, err, "want the clients of the program")
	_, err = config.Load(t.Context(), file("dependencies: {a: {policies: [redis: {Client: any, Limits: [{}]}]}}"), program(nil))
	require.ErrorContains(t, err, "a.redis.Limits[0].Rate")
}

// Three processes have one limit, each with its own client, and go on with it through reloads:
// the count is in the store.
func TestFleetOfAFile(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	text := `
dependencies:
  answers:
    policies:
      - redis:
          Limits: [{Rule: fixed_window, Limit: 10, Window: 60s, Keyed: true}]
          Settings: {Timeout: 10s, Nodes: 3}
`
	var managers []*config.Manager
	var pipes []*policy.Pipeline
	var source atomic.Pointer[string]
	source.Store(&text)
	for range 3 {
		reg := &policy.Registry{}
		m, err := config.NewManager(t.Context(), config.ManagerConfig{
			Registry: reg, Logger: slog.New(slog.DiscardHandler),
			Sources: []config.Source{&text0{&source}, program(map[string]redis.UniversalClient{"limits": client(t, server.Addr())})},
		})
		require.NoError(t, err)
		t.Cleanup(func() { m.Close(); _ = reg.Close(context.WithoutCancel(t.Context())) })
		p, _ := reg.Get("answers")
		managers, pipes = append(managers, m), append(pipes, p)
	}
	call := func(i int, user string) bool {
		ctx := policy.WithCall(t.Context(), policy.Call{Key: user})
		return policy.Run(ctx, pipes[i%3], func(context.Context) error { return nil }) == nil
	}
	let := 0
	for i := range 100 {
		if call(i, "kim") {
			let++
		}
		if i%10 == 9 {
			r, err := managers[i%3].Reload(t.Context())
			require.NoError(t, err)
			assert.False(t, r.Changed(), r)
		}
	}
	assert.Equal(t, 10, let)
	assert.True(t, call(0, "lee"))

	longer := text + "\n      - breaker: {}\n"
	source.Store(&longer)
	for i, m := range managers {
		r, err := m.Reload(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "answers: redis: kept, breaker: added", r.String())
		assert.False(t, call(i, "kim"))
	}
}

// text0 is a source that a test can change.
type text0 struct{ text *atomic.Pointer[string] }

func (*text0) Layer() config.Layer { return config.LayerFile }

func (s *text0) Read(context.Context) (config.Content, error) {
	return config.Content{Name: "b.yaml", YAML: []byte(*s.text.Load())}, nil
}

func lint(t *testing.T, path string) []*config.Finding {
	t.Helper()
	s, err := config.Load(t.Context(), config.File(path), program(nil))
	require.NoError(t, err)
	return config.Lint(s)
}

func TestRule16(t *testing.T) {
	t.Parallel()
	var found []string
	for _, f := range lint(t, filepath.Join("..", "testdata", "lint", "BW016-bad.yaml")) {
		found = append(found, fmt.Sprint(f.Rule.ID, " ", f.Path, ": ", f.Message))
	}
	assert.Equal(t, []string{
		"BW016 answers.redis.Settings.Timeout: up to 500ms for the store, and an attempt has 400ms",
		"BW016 answers.redis.Settings.StandIn: no call is let in while the store is away",
	}, found)
	assert.Empty(t, lint(t, filepath.Join("..", "testdata", "lint", "BW016-good.yaml")))
}

// Where the number of processes is stated, the share of one is what its quota is compared
// with.
func TestLintKnowsTheShare(t *testing.T) {
	t.Parallel()
	find := func(settings string) (found []string) {
		s, err := config.Load(t.Context(), program(nil), file(`
dependencies:
  a:
    facts: {Quota: 1000/s}
    policies:
      - redis: {Limits: [{Rate: 3000/s, Burst: 300}, {Name: w, Rule: sliding_window, Limit: 9k, Window: 1s}], Settings: {`+settings+`}}
      - bulkhead: {Limit: 100}
`))
		require.NoError(t, err)
		for _, f := range config.Lint(s) {
			found = append(found, f.Rule.ID+" "+f.Message)
		}
		return found
	}
	assert.Equal(t, []string{"BW012 9000 per second behind redis with 3000 per second", "BW021 3000 per second are 300 % of the quota of 1000", "BW002 300 calls may come at once, and bulkhead has room for 100"}, find(""))
	assert.Equal(t, []string{"BW012 2250 per second behind redis with 750 per second"}, find("Nodes: 4"))
	assert.Contains(t, find("MaxWait: 10s"), "BW001 calls wait up to 10s, and MaxWaiters is not stated")
	assert.NotContains(t, fmt.Sprint(find("LocalOnly: true, Timeout: 1m")), "BW016")
}

// What the loader accepts fits the schema, and misspelt names do not.
func TestSchema(t *testing.T) {
	t.Parallel()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(config.Schema(redisconfig.Kind(nil))))
	require.NoError(t, err)
	c := validator.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err)
	check := func(data []byte) error {
		raw, err := yaml.YAMLToJSON(data)
		require.NoError(t, err)
		v, err := validator.UnmarshalJSON(bytes.NewReader(raw))
		require.NoError(t, err)
		return s.Validate(v)
	}
	require.NoError(t, check([]byte(full)))
	files, err := filepath.Glob("../testdata/lint/*.yaml")
	require.NoError(t, err)
	incidents, err := filepath.Glob("../../examples/incidents/*/*.yaml")
	require.NoError(t, err)
	for _, f := range append(files, incidents...) {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.NoError(t, check(data), f)
	}
	for _, bad := range []string{
		"dependencies: {a: {policies: [redis: {Cleint: x}]}}", "dependencies: {a: {policies: [redis: {Limits: [{Rule: bucket}]}]}}",
		"dependencies: {a: {policies: [redis: {Settings: {Timeout: 5}}]}}", "dependencies: {a: {policies: [rediss: {}]}}",
	} {
		require.Error(t, check([]byte(bad)), bad)
	}
	assert.NotContains(t, string(config.Schema()), "redis")
}
