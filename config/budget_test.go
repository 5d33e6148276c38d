package config_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

const sharing = `
budgets:
  shop: {Ratio: 10%, MinPerSecond: off}
  grpc: {MaxTokens: 50}
  flight: {Share: 20%}
  plain:
templates: {t: {policies: [retry: {MaxAttempts: 2, BaseDelay: off, Budget: {Ratio: 50%, MinPerSecond: 5}}]}}
dependencies:
  a: {like: t, policies: [retry: {Budget: shop}]}
  b: {policies: [retry: {MaxAttempts: 2, BaseDelay: off, Budget: shop}, hedge: {Budget: shop, Delay: 1h}]}
  c: {policies: [retry: {Budget: grpc}]}
  d: {policies: [retry: {Budget: flight}, hedge: {Budget: plain}]}
`

func TestSharedBudgets(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), file(sharing), config.Flags("budgets.shop.Ratio=20%", "c.retry.Budget=plain"))
	require.NoError(t, err)
	require.Len(t, s.Budgets, 4)
	shop, ok := s.Budgets[0].Budget.(*retry.Budget)
	require.True(t, ok)
	assert.InDelta(t, 0.2, shop.Config().Ratio, 1e-9)
	assert.Equal(t, "flag budgets.shop.Ratio", s.Budgets[0].Values[1].Origin.String())
	assert.IsType(t, &retry.TokenBudget{}, s.Budgets[1].Budget)
	assert.IsType(t, &retry.InFlightBudget{}, s.Budgets[2].Budget)
	budget := func(dep, i int) retry.BudgetSource {
		switch c := s.Dependencies[dep].Policies[i].Spec.(type) {
		case retry.Config:
			return c.Budget
		case retry.Hedge:
			return c.Budget
		}
		return nil
	}
	assert.Same(t, shop, budget(0, 0), "in place of that of the template")
	assert.Same(t, shop, budget(1, 0))
	assert.Same(t, shop, budget(1, 1))
	assert.Same(t, s.Budgets[3].Budget, budget(2, 0))
	assert.Same(t, s.Budgets[3].Budget, budget(3, 1))
	for _, f := range config.Lint(s) {
		assert.NotContains(t, []string{"BW009", "BW015"}, f.Rule.ID)
	}
}

func TestSharedBudgetFaults(t *testing.T) {
	t.Parallel()
	_, err := config.Load(t.Context(), file(`
budgets:
  shop: {Ratio: 3, MinPerSecnd: 1}
  None: {}
  list: []
dependencies:
  a: {policies: [retry: {Budget: shp}, hedge: {Budget: shop}]}
  b: {policies: [retry: {Budget: []}, hedge: {Budget: nnoe}]}
`), config.Flags("budgets.shop.Ratoi=1", "budgets.sho=1"))
	for _, want := range []string{
		`b.yaml:3:17: budgets.shop.Ratio: 3: want above 0, at most 1`,
		`b.yaml:3:20: budgets.shop.MinPerSecnd: there is no setting "MinPerSecnd": did you mean "MinPerSecond"?`,
		`b.yaml:4:3: budgets.None: want another name`,
		`b.yaml:5:9: budgets.list: a list: want a mapping`,
		`b.yaml:7:34: a.retry.Budget: there is no budget "shp": did you mean "shop"?`,
		`b.yaml:8:34: b.retry.Budget: a list: want the settings of a budget, the name of one of budgets, or none`,
		`b.yaml:8:55: b.hedge.Budget: there is no budget "nnoe": did you mean "none"?`,
		`there is no setting of budgets.shop "Ratoi": did you mean "Ratio"?`,
		`there is no budget "sho": did you mean "shop"?`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

// One budget for two dependencies keeps what it has counted, whatever is reloaded around it.
func TestSharedBudgetsSurviveReloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := func(budget, more string) string {
			return "budgets: {shop: " + budget + more + "}\n" + `
dependencies:
  a: {policies: [retry: {MaxAttempts: 2, BaseDelay: off, Budget: shop}]}
  b: {policies: [retry: {MaxAttempts: 2, BaseDelay: off, Budget: shop}]}
`
		}
		m := manage(t, text("{Ratio: 10%, MinPerSecond: off, Window: 1h}", ""))
		attempts := func(dep string, n int) (ran int) {
			p, _ := m.reg.Get(dep)
			for range n {
				_ = policy.Run(t.Context(), p, func(context.Context) error { ran++; return errors.New("down") })
			}
			return ran
		}
		reload := func(s string) string {
			m.store.set(s, nil)
			r, err := m.Reload(t.Context())
			require.NoError(t, err)
			return r.String()
		}
		assert.Equal(t, 110, attempts("a", 100), "a tenth is retried")
		assert.Equal(t, "nothing has changed", reload(text("{Ratio: 10%, MinPerSecond: off, Window: 1h}", "")))
		assert.Equal(t, 5, attempts("b", 5), "and nothing is left for the other")
		assert.Equal(t, "budget other: added\nbudget shop: resized", reload(text("{Ratio: 20%, MinPerSecond: off, Window: 1h}", ", other: {}")))
		assert.Equal(t, 20+15, attempts("b", 20), "a fifth of 125 calls, of which 10 were spent")
		assert.Equal(t, []config.Difference{{Path: "budgets.other", New: "budget"}, {Path: "budgets.shop.Ratio", Old: "10%", New: "20%"}},
			config.Diff(m.History()[1].Settings, m.History()[2].Settings))
		assert.Equal(t, "budget other: removed\nbudget shop: reset (the budget is another one)\n"+
			"a: retry: reset (the budget is another one)\nb: retry: reset (the budget is another one)", reload(text("{MaxTokens: 10}", "")))
		m.store.set("dependencies: [", nil)
		_, err := m.Reload(t.Context())
		require.Error(t, err)
		r, err := m.Rollback(t.Context(), 3)
		require.NoError(t, err)
		assert.Contains(t, r.String(), "budget shop: reset")
	})
}
