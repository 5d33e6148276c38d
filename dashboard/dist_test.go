package dashboard_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPageIsBuiltFromItsSources: whoever changes the page has to build it. That what was
// built is what the sources come to is seen by make dashboard-check, which needs Node.
func TestPageIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("dist/sources.txt")
	require.NoError(t, err)
	built := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, line)
		built[name] = sum
	}
	ui := os.DirFS("ui")
	now := map[string]string{}
	add := func(name string) {
		body, err := fs.ReadFile(ui, name)
		require.NoError(t, err)
		sum := sha256.Sum256(body)
		now[name] = hex.EncodeToString(sum[:])
	}
	for _, name := range []string{"index.html", "package-lock.json", "package.json", "vite.config.js"} {
		add(name)
	}
	for _, dir := range []string{"public", "src"} {
		entries, err := fs.ReadDir(ui, dir)
		require.NoError(t, err)
		for _, e := range entries {
			add(dir + "/" + e.Name())
		}
	}
	assert.Equal(t, now, built, "run make dashboard and commit dashboard/dist")
}

// TestPageAsksNobodyElse: nothing in the page names an address outside.
func TestPageAsksNobodyElse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dist/index.html", "dist/app.css", "dist/app.js"} {
		body, err := os.ReadFile(name)
		require.NoError(t, err)
		text := strings.NewReplacer(
			"http://www.w3.org/2000/svg", "", "http://www.w3.org/1999/xhtml", "", "http://www.w3.org/1998/Math/MathML", "", // names, not addresses
		).Replace(string(body))
		assert.False(t, regexp.MustCompile(`https?://[a-z]`).MatchString(text), name)
	}
	sources, err := fs.Glob(os.DirFS("ui/src"), "*")
	require.NoError(t, err)
	for _, name := range sources {
		body, err := os.ReadFile("ui/src/" + name)
		require.NoError(t, err)
		assert.False(t, strings.Contains(string(body), "InnerHTML"), "%s: texts are set as text", name)
	}
}
