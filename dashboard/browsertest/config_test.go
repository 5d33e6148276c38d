package browsertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

// managed is a process whose pipelines come from a file.
type managed struct {
	registry policy.Registry
	manager  *config.Manager
	path     string
	url      string
}

func newManaged(t *testing.T, text string) *managed {
	t.Helper()
	m := &managed{path: filepath.Join(t.TempDir(), "breakwater.yaml")}
	m.write(t, text)
	var err error
	m.manager, err = config.NewManager(t.Context(), config.ManagerConfig{
		Registry: &m.registry, Sources: []config.Source{config.File(m.path)}, Debounce: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	watched := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { watched <- m.manager.Watch(ctx) }()
	d, err := dashboard.New(&m.registry, dashboard.Config{Title: "shop", Actions: true, Authorize: everybody, Console: m.manager.Console()})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/breakwater/", d)
	srv := httptest.NewServer(mux)
	m.url = srv.URL + "/breakwater/"
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-watched)
		d.Close()
		m.manager.Close()
		srv.CloseClientConnections()
		srv.Close()
		require.NoError(t, m.registry.Close(context.WithoutCancel(t.Context())))
	})
	return m
}

func (m *managed) write(t *testing.T, policies string) {
	t.Helper()
	require.NoError(t, os.WriteFile(m.path, []byte("dependencies:\n  inventory:\n    policies:\n"+policies), 0o600))
}

func (m *managed) limit(t *testing.T) int {
	t.Helper()
	p, ok := m.registry.Get("inventory")
	require.True(t, ok)
	for _, s := range p.Snapshot().Policies {
		if s.Bulkhead != nil {
			return s.Bulkhead.Limit
		}
	}
	return 0
}

// TestConfiguration changes settings by hand on the page, reloads the file, breaks it and
// rolls back.
func TestConfiguration(t *testing.T) {
	m := newManaged(t, "      - bulkhead: {Limit: 24}\n      - breaker: {OpenFor: 5s}\n      - timeout: {Total: 2s}\n")
	p := open(t, m.url+"#/d/inventory", 1400, 900)
	setting := func(policyName, field string) string {
		return `document.querySelector('.settings [data-policy="` + policyName + `"] [data-setting="` + field + `"]')?.textContent`
	}
	p.await(setting("bulkhead", "Limit"))
	assert.Contains(t, js[string](p, setting("bulkhead", "Limit")), "24file: "+m.path+":4:")
	assert.Contains(t, js[string](p, setting("breaker", "MinCalls")), "20default")

	change := func(button, name, value string) {
		t.Helper()
		p.click(button)
		p.fill(`dialog input[name="`+name+`"]`, value)
		p.fill(`dialog select[name="seconds"]`, "3600")
		p.fill(`dialog input[name="why"]`, "vendor <b>maintenance</b>")
		p.click(`dialog button[data-step="preview"]`)
		p.await(`document.querySelector("dialog .difference")`)
		p.click(`dialog button[data-step="apply"]`)
		p.await(`!document.querySelector("dialog")`)
	}
	change(`button[data-act="set"][data-policy="bulkhead"]`, "Limit", "10")
	assert.Equal(t, 10, m.limit(t))
	byHand := `/^Limit10by hand, ann: vendor <b>maintenance<\/b>, until \d\d:\d\d:\d\d$/.test(` + setting("bulkhead", "Limit") + `)`
	p.await(byHand)

	// A setting that could not be changed before.
	p.click(`button[data-act="change"][data-policy="breaker"]`)
	p.fill(`dialog select[name="field"]`, "OpenFor")
	p.fill(`dialog input[name="text"]`, "soon")
	p.fill(`dialog input[name="why"]`, "longer")
	p.click(`dialog button[data-step="preview"]`)
	p.await(`/want a duration/.test(document.querySelector("dialog .error")?.innerText)`)
	p.fill(`dialog input[name="text"]`, "30s")
	p.click(`dialog button[data-step="preview"]`)
	p.await(`/5s \(.*breakwater.yaml:5:.*30s/s.test(document.querySelector("dialog .difference")?.innerText)`)
	p.click(`dialog button[data-step="apply"]`)
	p.await(`!document.querySelector("dialog") && /^OpenFor30sby hand/.test(` + setting("breaker", "OpenFor") + `)`)

	// The file changes: what was set by hand is still in force.
	m.write(t, "      - bulkhead: {Limit: 50, MaxWait: 1s}\n      - breaker: {OpenFor: 5s}\n      - timeout: {Total: 3s}\n")
	p.await(`/^Total3sfile: /.test(` + setting("timeout", "Total") + `)`)
	p.await(byHand)
	assert.Equal(t, 10, m.limit(t))

	// The file breaks: the page says so, with file, line and field, until it is right.
	m.write(t, "      - bulkhead: {Limit: 50}\n      - breaker: {OpenFr: 5s}\n")
	p.await(`/breakwater.yaml:5:\d+: inventory.breaker.OpenFr: .*did you mean "OpenFor"/.test(document.querySelector(".faults")?.innerText)`)
	p.click(`nav a`)
	p.await(`document.querySelector(".verdict") && document.querySelector(".faults")`)
	assert.Equal(t, 10, m.limit(t))

	// Versions, and one of them again.
	p.click(`.configuration summary`)
	p.await(`document.querySelectorAll(".configuration [data-version]").length == 4`)
	assert.Contains(t, p.text(`.configuration [data-version="4"]`), "inventory.timeout.Total")
	p.click(`.configuration [data-version="1"] button[data-act="rollback"]`)
	p.fill(`dialog input[name="why"]`, "it was better")
	p.click(`dialog button[data-step="preview"]`)
	p.await(`/inventory.timeout.Total.*2s/s.test(document.querySelector("dialog .difference")?.innerText)`)
	p.click(`dialog button[data-step="apply"]`)
	p.await(`!document.querySelector("dialog") && document.querySelector('.configuration [data-version="5"]')`)

	// Undone, the setting of the file is in force again; and a good file takes the banner away.
	m.write(t, "      - bulkhead: {Limit: 51}\n      - breaker: {OpenFor: 5s}\n")
	p.await(`!document.querySelector(".faults")`)
	for range 2 {
		p.click(`.inforce button`)
		p.fill(`dialog input[name="why"]`, "over")
		p.click(`dialog button[type="submit"]`)
		p.await(`!document.querySelector("dialog")`)
	}
	require.Eventually(t, func() bool { return m.limit(t) == 51 }, 5*time.Second, 20*time.Millisecond)
	p.await(`!document.querySelector(".inforce")`)
}

// TestConfigurationAccessible has axe look at what a configuration adds to the pages.
func TestConfigurationAccessible(t *testing.T) {
	axe, err := os.ReadFile("testdata/axe.min.js")
	require.NoError(t, err)
	m := newManaged(t, "      - bulkhead: {Limit: 24}\n      - breaker: {OpenFor: 5s}\n")
	m.write(t, "      - bulkhead: {Limit: 0.5}\n")
	for _, theme := range []string{"light", "dark"} {
		for hash, ready := range map[string]string{"#/": `.configuration summary`, "#/d/inventory": `button[data-act="change"]`} {
			for _, width := range []int64{1400, 390} {
				t.Run(fmt.Sprintf("%s %s %d", theme, hash, width), func(t *testing.T) {
					p := open(t, m.url+hash, width, 900)
					js[bool](p, "localStorage.setItem('theme', "+quote(theme)+"), location.reload(), true")
					p.await(`document.querySelector(".mode.live") && document.querySelector(".faults")`)
					if hash == "#/" || width > 1000 {
						p.click(ready)
						p.await(`document.querySelector("dialog") || document.querySelector("[data-version]")`)
					}
					js[bool](p, string(axe)+";true")
					found := js[string](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html.slice(0, 160) + " " + n.failureSummary).slice(0, 3).join(" | "))))`)
					assert.Equal(t, "[]", found)
					assert.LessOrEqual(t, js[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`), 0, "nothing sticks out")
				})
			}
		}
	}
}
