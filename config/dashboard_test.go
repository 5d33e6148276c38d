package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

// page is a dashboard of managed pipelines.
type page struct {
	*testing.T
	*dashboard.Dashboard
}

func newPage(t *testing.T, m *managed) page {
	t.Helper()
	d, err := dashboard.New(&m.reg, dashboard.Config{
		Console: m.Console(), Actions: true,
		Authorize: func(*http.Request) (dashboard.Viewer, bool) { return dashboard.Viewer{Name: "ann", Act: true}, true },
	})
	require.NoError(t, err)
	return page{t, d}
}

func (p page) ask(method, path, body string) (int, []byte) {
	p.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1/api/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Breakwater-Act", "1")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

func answer[T any](p page, method, path, body string) (v T) {
	p.Helper()
	status, b := p.ask(method, path, body)
	require.Equal(p, http.StatusOK, status, "%s", b)
	require.NoError(p, json.Unmarshal(b, &v))
	return v
}

// setting returns a setting of a's policies as the page shows it.
func (p page) setting(policyName, field string) dashboard.EffectiveSetting {
	p.Helper()
	for _, ps := range answer[dashboard.Detail](p, http.MethodGet, "dependency?name=a", "").Settings {
		for _, s := range ps.Settings {
			if ps.Policy == policyName && s.Field == field {
				return s
			}
		}
	}
	require.Fail(p, "no such setting", "%s.%s", policyName, field)
	return dashboard.EffectiveSetting{}
}

func (p page) act(body string) dashboard.AuditEntry {
	p.Helper()
	return answer[dashboard.AuditEntry](p, http.MethodPost, "act", body)
}

// What is changed on the dashboard survives reloads, says where it comes from, and ends.
func TestDashboardChangesSurviveReloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("ratelimit: {Rate: 100/s}, bulkhead: {Limit: 5}, breaker: {OpenFor: 5s}, retry: {MaxAttempts: 2}, timeout: {Total: 2s}, adaptive: {Max: 50}"))
		p := newPage(t, m)
		assert.Equal(t, "store", strings.Split(p.setting("bulkhead", "Limit").Origin, ":")[0])
		assert.Equal(t, dashboard.EffectiveSetting{Field: "MinCalls", Value: "20", Layer: "default"}, p.setting("breaker", "MinCalls"))

		// The levers of before, by their numbers.
		pre := answer[dashboard.Preview](p, http.MethodPost, "preview", `{"dependency":"a","policy":"bulkhead","action":"set","values":{"Limit":3},"seconds":600}`)
		require.Len(t, pre.Differences, 1)
		assert.Equal(t, "a.bulkhead.Limit", pre.Differences[0].What)
		assert.Regexp(t, `^5 \(store:1:\d+\)$`, pre.Differences[0].From)
		assert.Equal(t, "3", pre.Differences[0].To)
		p.act(`{"dependency":"a","policy":"bulkhead","action":"set","values":{"Limit":3},"seconds":600,"why":"vendor","expect":` + fmt.Sprintf("%q", pre.Expect) + `}`)
		p.act(`{"dependency":"a","policy":"ratelimit","action":"set","values":{"Rate":7.5},"seconds":600,"why":"vendor"}`)
		p.act(`{"dependency":"a","policy":"bulkhead","action":"shadow","seconds":600,"why":"look"}`)
		// Every setting, as a file has it; also what cannot be set otherwise.
		for policyName, texts := range map[string]string{
			"breaker": `{"OpenFor":"1m","FailureRatio":"0.9"}`, "retry": `{"MaxAttempts":"4"}`, "adaptive": `{"Max":"70"}`, "timeout": `{"Total":"3s"}`,
		} {
			p.act(`{"dependency":"a","policy":"` + policyName + `","action":"change","texts":` + texts + `,"seconds":600,"why":"x"}`)
		}
		until := time.Now().Add(10 * time.Minute).UnixMilli()
		m.store.set(one("ratelimit: {Rate: 200/s}, bulkhead: {Limit: 9}, breaker: {OpenFor: 6s}, retry: {MaxAttempts: 3}, timeout: {Total: 2s}, adaptive: {Max: 50}"), nil)
		_, err := m.Reload(t.Context())
		require.NoError(t, err)
		for _, want := range []struct{ policyName, field, value string }{
			{"bulkhead", "Limit", "3"},
			{"bulkhead", "Shadow", "true"},
			{"ratelimit", "Rate", "7.5/s"},
			{"breaker", "OpenFor", "1m"},
			{"breaker", "FailureRatio", "0.9"},
			{"retry", "MaxAttempts", "4"},
			{"adaptive", "Max", "70"},
			{"timeout", "Total", "3s"},
		} {
			got := p.setting(want.policyName, want.field)
			assert.Equal(t, []any{want.value, "hand", until}, []any{got.Value, got.Layer, got.Until}, want)
			assert.Regexp(t, "^ann: ", got.Note)
		}
		pipe, _ := m.reg.Get("a")
		for _, s := range pipe.Snapshot().Policies {
			switch s.Name {
			case "bulkhead":
				assert.Equal(t, 3, s.Bulkhead.Limit)
				assert.True(t, s.Shadow)
			case "ratelimit":
				assert.InDelta(t, 7.5, s.Limiter.Rate, 1e-9)
			case "breaker":
				assert.InDelta(t, 0.9, s.Breaker.FailureThreshold, 1e-9)
			case "adaptive":
				assert.Equal(t, 70, s.Bulkhead.MaxLimit)
			}
		}

		// Undone, replaced, ended.
		e := answer[dashboard.Events](p, http.MethodGet, "events?name=a", "")
		require.Len(t, e.InForce, 7)
		for _, f := range e.InForce {
			if f.Policy == "ratelimit" {
				_ = answer[dashboard.AuditEntry](p, http.MethodPost, "undo", fmt.Sprintf(`{"id":%d,"why":"done"}`, f.ID))
			}
		}
		assert.Equal(t, "200/s", p.setting("ratelimit", "Rate").Value)
		p.act(`{"dependency":"a","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":60,"why":"more"}`)
		p.act(`{"dependency":"a","policy":"breaker","action":"force_open","seconds":60,"why":"other things"}`)
		e = answer[dashboard.Events](p, http.MethodGet, "events?name=a", "")
		assert.Len(t, e.InForce, 7, "one was undone, one replaced, a command came: %v", e.InForce)
		time.Sleep(61 * time.Second)
		assert.Equal(t, "9", p.setting("bulkhead", "Limit").Value, "what the file says by now")
		time.Sleep(9 * time.Minute)
		assert.Equal(t, "6s", p.setting("breaker", "OpenFor").Value)
		e = answer[dashboard.Events](p, http.MethodGet, "events?name=a", "")
		assert.Empty(t, e.InForce)
		assert.Equal(t, "its time is over", e.Audit[0].Why)

		// It survives the dashboard, too.
		p.act(`{"dependency":"a","policy":"bulkhead","action":"set","values":{"Limit":2},"seconds":600,"why":"vendor"}`)
		p.Close()
		assert.Equal(t, "2", settingOf(t, m.Console(), "bulkhead", "Limit").Value)
		m.Close()
	})
}

// What is wrong with a file is on every page until it is right; versions can be compared,
// and put into effect again.
func TestDashboardShowsFaultsAndVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("bulkhead: {Limit: 5}, breaker: {}"))
		p := newPage(t, m)
		m.store.set(one("bulkhead: {Limit: 8}, breaker: {}"), nil)
		_, err := m.Reload(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		m.store.set(one("bulkhead: {Limit: 0.5}, breaker: {OpenFr: 1s}"), nil)
		_, err = m.Reload(t.Context())
		require.Error(t, err)
		at := time.Now().UnixMilli()
		time.Sleep(2 * time.Second)
		p.act(`{"dependency":"a","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":600,"why":"x"}`)
		c := answer[dashboard.Overview](p, http.MethodGet, "snapshot", "").Config
		require.NotNil(t, c)
		assert.True(t, c.Managed)
		require.Len(t, c.Faults, 2)
		assert.Regexp(t, `^store:1:\d+: a.bulkhead.Limit: `, c.Faults[0])
		assert.Regexp(t, `^store:1:\d+: a.breaker.OpenFr: .*did you mean "OpenFor"`, c.Faults[1])
		assert.Equal(t, at, c.FaultAt)
		changes := answer[dashboard.Events](p, http.MethodGet, "events", "").Changes
		var words []string
		for _, ch := range changes {
			words = append(words, ch.Words)
		}
		text := strings.Join(words, "\n")
		assert.Contains(t, text, "configuration 2 (reload) is in force: a: bulkhead: resized, breaker: kept")
		assert.Contains(t, text, "a configuration was refused, and nothing has changed: store:1:")

		h := answer[dashboard.ConfigHistory](p, http.MethodGet, "config", "")
		require.Len(t, h.Versions, 3)
		assert.Equal(t, []string{"hand", "reload", "load"}, []string{h.Versions[0].Why, h.Versions[1].Why, h.Versions[2].Why})
		assert.Equal(t, "ann: x", h.Versions[0].Note)
		assert.Equal(t, []string{"a: bulkhead: resized, breaker: kept"}, h.Versions[1].Changes)
		require.Len(t, h.Versions[1].Differences, 1)
		assert.Equal(t, []string{"a.bulkhead.Limit", "8"}, []string{h.Versions[1].Differences[0].What, h.Versions[1].Differences[0].To})

		_ = answer[dashboard.AuditEntry](p, http.MethodPost, "undo", `{"id":1,"why":"x"}`)
		pre := answer[dashboard.Preview](p, http.MethodPost, "preview", `{"action":"rollback","version":1}`)
		require.Len(t, pre.Differences, 1)
		assert.Equal(t, "5", pre.Differences[0].To)
		e := p.act(`{"action":"rollback","version":1,"why":"it was better"}`)
		assert.Contains(t, e.Words, "back to version 1")
		assert.Equal(t, "5", p.setting("bulkhead", "Limit").Value)
		assert.NotEmpty(t, answer[dashboard.Overview](p, http.MethodGet, "snapshot", "").Config.Faults, "the file is wrong still")

		m.store.set(one("bulkhead: {Limit: 6}, breaker: {}"), nil)
		_, err = m.Reload(t.Context())
		require.NoError(t, err)
		assert.Empty(t, answer[dashboard.Overview](p, http.MethodGet, "snapshot", "").Config.Faults)

		for _, tt := range []struct {
			status int
			body   string
		}{
			{http.StatusNotFound, `{"action":"rollback","version":99,"why":"x"}`},
			{http.StatusConflict, `{"action":"rollback","version":1,"why":"x","expect":"version=1"}`},
			{http.StatusBadRequest, `{"dependency":"a","policy":"breaker","action":"change","texts":{"OpenFor":"soon"},"seconds":60,"why":"x"}`},
			{http.StatusBadRequest, `{"dependency":"a","policy":"breaker","action":"change","seconds":60,"why":"x"}`},
			{http.StatusBadRequest, `{"dependency":"a","policy":"breaker","action":"change","texts":{"OpenFor":"9s"},"why":"x"}`},
			{http.StatusNotFound, `{"dependency":"a","policy":"none","action":"change","texts":{"OpenFor":"9s"},"seconds":60,"why":"x"}`},
		} {
			status, b := p.ask(http.MethodPost, "act", tt.body)
			assert.Equal(t, tt.status, status, "%s: %s", tt.body, b)
		}
		pipe, _ := m.reg.Get("a")
		assert.Equal(t, policy.ConfigSnapshot{}.LastError, m.reg.Config().LastError)
		assert.NotNil(t, pipe)
		p.Close()
		m.Close()
	})
}

// A change that cannot be taken back yet stays in the books, so that it can be later.
func TestDashboardKeepsWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("adaptive: {Min: 10, Max: 20}"))
		p := newPage(t, m)
		first := p.act(`{"dependency":"a","policy":"adaptive","action":"change","texts":{"Max":"50"},"seconds":600,"why":"more"}`)
		second := p.act(`{"dependency":"a","policy":"adaptive","action":"change","texts":{"Min":"30"},"seconds":600,"why":"at least"}`)
		undo := func(id uint64) int {
			status, _ := p.ask(http.MethodPost, "undo", fmt.Sprintf(`{"id":%d,"why":"x"}`, id))
			return status
		}
		assert.Equal(t, http.StatusConflict, undo(first.ID), "20 is less than 30")
		assert.Len(t, answer[dashboard.Events](p, http.MethodGet, "events?name=a", "").InForce, 2)
		assert.Equal(t, http.StatusOK, undo(second.ID))
		assert.Equal(t, http.StatusOK, undo(first.ID))
		assert.Equal(t, "20", p.setting("adaptive", "Max").Value)
		p.Close()
		m.Close()
	})
}

// Settings are found whatever the case of their letters, and so is what a change replaces.
func TestDashboardReplacesByAnySpelling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, one("breaker: {OpenFor: 5s}, bulkhead: {Limit: 5}"))
		p := newPage(t, m)
		p.act(`{"dependency":"a","policy":"breaker","action":"change","texts":{"openfor":"7s"},"seconds":600,"why":"x"}`)
		p.act(`{"dependency":"a","policy":"breaker","action":"change","texts":{"OpenFor":"8s"},"seconds":600,"why":"x"}`)
		assert.Len(t, answer[dashboard.Events](p, http.MethodGet, "events?name=a", "").InForce, 1, "the first was replaced")
		// One value twice in one change: nobody can say which is meant.
		status, b := p.ask(http.MethodPost, "act", `{"dependency":"a","policy":"breaker","action":"change","texts":{"openfor":"7s","OpenFor":"8s"},"seconds":600,"why":"x"}`)
		assert.Equal(t, http.StatusBadRequest, status, "%s", b)
		p.Close()
		m.Close()
	})
}

// A change by hand cannot reach the settings of another policy or dependency than it names.
func TestDashboardChangeStaysWhereItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, "dependencies: {a: {policies: [breaker: {}]}, a.breaker: {policies: [bulkhead: {Limit: 5}]}, b: {policies: [breaker: {}, bulkhead: {Limit: 3}]}}")
		p := newPage(t, m)
		for _, body := range []string{
			`{"dependency":"a","policy":"breaker","action":"change","texts":{"bulkhead.Limit":"1"},"seconds":600,"why":"x"}`,
			`{"dependency":"b","policy":"breaker","action":"change","texts":{"":"1"},"seconds":600,"why":"x"}`,
			`{"dependency":"b","policy":"breaker","action":"change","texts":{"Shadow":"{a: b}"},"seconds":600,"why":"x"}`,
		} {
			status, b := p.ask(http.MethodPost, "preview", body)
			assert.Equal(t, http.StatusBadRequest, status, "%s", b)
			status, b = p.ask(http.MethodPost, "act", body)
			assert.Equal(t, http.StatusBadRequest, status, "%s", b)
		}
		p.Close()
		m.Close()
	})
}
