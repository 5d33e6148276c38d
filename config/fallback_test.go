package config_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

var (
	errDown   = errors.New("down")
	errMapped = errors.New("the shop is closed")
)

type stock struct {
	SKU     string `json:"sku"`
	InStock bool   `json:"inStock"`
}

func answers() *config.Program {
	return &config.Program{Policies: map[string]policy.Policy{
		"cached-stock": fallback.Func(func(context.Context, policy.FailedCall) (stock, error) { return stock{SKU: "cached"}, nil }),
		"shop-errors":  fallback.ErrorMap{Func: func(policy.FailedCall) error { return errMapped }},
		"later":        fallback.Defer[stock]{Queue: queue{}},
		"judge":        policy.ClassifyErrors(func(error) policy.Kind { return policy.Permanent }),
	}}
}

type queue struct{}

func (queue) Enqueue(context.Context, fallback.Task) error { return nil }

// What a file can say it says: the value, in whatever type the call has, or the response.
func TestFallbackInTheFile(t *testing.T) {
	t.Parallel()
	m := manage(t, `
dependencies:
  value: {policies: [fallback: {Value: {sku: unknown, inStock: true}}]}
  text: {policies: [fallback: {Value: "off"}]}
  http:
    policies:
      - breaker: {}
      - fallback: {Response: {Status: 203, Header: {content-type: application/json}, Body: '{"inStock": true}'}}
`)
	get := func(name string) *policy.Pipeline {
		p, ok := m.reg.Get(name)
		require.True(t, ok)
		return p
	}
	s, err := policy.DoResult(t.Context(), get("value"), func(context.Context) (stock, error) { return stock{}, errDown })
	require.NoError(t, err)
	assert.True(t, s.Degraded)
	assert.Equal(t, stock{"unknown", true}, s.Value)
	off, err := policy.Do(t.Context(), get("text"), func(context.Context) (string, error) { return "", errDown })
	require.NoError(t, err)
	assert.Equal(t, "off", off)

	client := &http.Client{Transport: httpx.Transport(get("http"), roundTrip(func(*http.Request) (*http.Response, error) { return nil, errDown }))}
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.test/stock", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 203, resp.StatusCode)
		assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		assert.JSONEq(t, `{"inStock": true}`, string(body))
	}
	_, err = policy.Do(t.Context(), get("http"), func(context.Context) (int, error) { return 0, errDown })
	require.ErrorContains(t, err, "the fallback has a Response, and the call returns *int")
	v, err := policy.Do(t.Context(), get("http"), func(context.Context) (any, error) { return nil, errDown })
	require.NoError(t, err)
	assert.IsType(t, &http.Response{}, v)

	r, err := m.Reload(t.Context())
	require.NoError(t, err)
	assert.False(t, r.Changed(), r)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What is code a file refers to, and a reload keeps it as it is.
func TestPoliciesOfTheProgram(t *testing.T) {
	t.Parallel()
	text := `
dependencies:
  a:
    policies:
      - fallback: {Use: cached-stock, Gate: {Limit: 1}}
  b:
    policies:
      - errormap: {Use: shop-errors}
      - classify: {Use: judge}
      - defer: {Name: queue, Use: later}
      - fallback: {Name: last, Use: cached-stock}
`
	m := manage(t, text, func(c *config.ManagerConfig) { c.Sources = append(c.Sources, answers()) })
	a, _ := m.reg.Get("a")
	b, _ := m.reg.Get("b")
	down := func(context.Context) (stock, error) { return stock{}, errDown }
	s, err := policy.Do(t.Context(), a, down)
	require.NoError(t, err)
	assert.Equal(t, "cached", s.SKU)
	assert.Equal(t, 1, a.Snapshot().Policies[0].Fallback.Guard.Bulkhead.Limit)
	_, err = policy.Do(t.Context(), b, down)
	require.ErrorIs(t, err, errMapped, "judged as permanent, so that no fallback answers")
	require.ErrorIs(t, err, errDown)
	var names []string
	for _, p := range b.Snapshot().Policies {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"errormap", "queue", "last"}, names)

	for range 3 {
		r, err := m.Reload(t.Context())
		require.NoError(t, err)
		assert.False(t, r.Changed(), r)
	}
	assert.Equal(t, uint64(1), a.Snapshot().Policies[0].Fallback.Served)
}

func TestFallbackFaults(t *testing.T) {
	t.Parallel()
	_, err := config.Load(t.Context(), answers(), file(`
dependencies:
  a: {policies: [fallback: {Use: cached-stok}]}
  b: {policies: [fallback: {}]}
  c: {policies: [fallback: {Value: 3, Use: cached-stock}]}
  d: {policies: [fallback: {Response: {Status: 99}}, errormap: {}]}
  e: {policies: [fallback: {Value: .nan}, stale: {Use: later}]}
  f: {policies: [fallback: {Value: 3, Gate: {Limit: 3}}, defer: {Usee: later}]}
  g: {policies: [fallback: {Use: cached-stock, Gate: {Limit: -3}}]}
`))
	for _, want := range []string{
		`b.yaml:3:34: a.fallback.Use: there is no policy of the program "cached-stok": did you mean "cached-stock"?`,
		`b.yaml:4:28: b.fallback: want one of Value, Response and Use`,
		`b.yaml:5:28: c.fallback: want one of Value, Response and Use`,
		`b.yaml:6:48: d.fallback.Response.Status: 99: want 200 to 599`,
		`d.errormap.Use: want the name of a policy that the program has handed over`,
		`b.yaml:7:36: e.fallback.Value: want what JSON can say`,
		`e.stale.Use: later: it is a defer, and has to stand under that kind`,
		`f.fallback.Gate: want none`,
		`f.defer.Usee: there is no setting "Usee": did you mean "Use"?`,
		`g.fallback.Gate.Limit: -3: `,
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = config.Load(t.Context(), file("dependencies: {a: {policies: [defer: {Use: x}]}}"))
	require.ErrorContains(t, err, `there is no policy "x": the program has handed over none`)

	tool := &config.Program{AnyName: true}
	s, err := config.Load(t.Context(), tool, file("dependencies: {a: {policies: [defer: {Use: x}, fallback: {Use: y}]}}"))
	require.NoError(t, err)
	_, err = policy.New("a", s.Dependencies[0].Specs()...)
	require.ErrorContains(t, err, "a.defer.Use: x: want the policies of the program")

	_, err = config.Load(t.Context(), file(""), &config.Program{Policies: map[string]policy.Policy{
		"nil": nil, "gate": policy.Timeouts{Total: time.Second}, "bad": fallback.ErrorMap{}, "chain": fallback.Chain[int](),
	}})
	for _, want := range []string{`Policies["nil"]: want a policy`, `Policies["gate"]: timeout: want one of fallback`, "errormap.Func", `Policies["chain"]: want a single policy`} {
		assert.ErrorContains(t, err, want)
	}
}
