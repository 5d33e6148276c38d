package browsertest_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDemo opens the dashboard of the demo, whose address it prints, during its incident.
func TestDemo(t *testing.T) {
	program := filepath.Join(t.TempDir(), "breakwater")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../cmd/breakwater", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	cmd := exec.CommandContext(t.Context(), program, "demo", "--for", "25s", "--hold", "--json", "--spans")
	cmd.Stdout = io.Discard
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	url := ""
	lines := bufio.NewScanner(errs)
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), "dashboard: ")
	}
	require.NotEmpty(t, url)
	drained := make(chan struct{})
	held := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "the run is over; the dashboard stays") {
				close(held)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-drained
		_ = cmd.Wait()
	})

	p := open(t, url, 1400, 900)
	p.await(`document.querySelector(".verdict.level3") && /inventory/.test(document.querySelector(".cards li:first-child h3").innerText)`)
	for _, q := range []struct{ id, want string }{ // while it goes on, each with one click
		{"open", `inventory breaker is open`},
		{"since", `inventory open for`},
		{"why", `inventory .*calls (failed|were slow); the limit is 50 %`},
		{"probe", `inventory next probe`},
		{"refused", `inventory breaker refuses`},
		{"changed", `rose from`},
		{"nearest", `\d+ of \d+`},
		{"budget", `inventory .*retries left`},
		{"fallback", `inventory fallback answers`},
		{"may", `(change|Change) `},
	} {
		p.click(`details[data-question="` + q.id + `"] summary`)
		p.await(`/` + q.want + `/.test(document.querySelector('details[data-question="` + q.id + `"]').textContent.replace(/\s+/g, " "))`)
	}
	p.click(`.cards li:first-child h3 a`)
	p.await(`document.querySelector(".states") && /Closed → Open/.test(document.querySelector('section[aria-label="Timeline"]')?.innerText)`)
	assert.Regexp(t, `trace [0-9a-f]{32}`, p.text(`section[aria-label="Last failures"]`), "the trace of a call that failed")
	// It stays when the run is over.
	select {
	case <-held:
	case <-time.After(60 * time.Second):
		require.Fail(t, "the run does not end")
	}
	js[bool](p, "location.reload(), true")
	p.await(`document.querySelector(".mode.live") && document.querySelector(".uplot")`)
}
