package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program, in virtual time. It is not parallel: it changes os.Stdout.
func TestProgram(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	synctest.Test(t, func(*testing.T) { main() })

	_, err = out.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, out.Close())

	var kinds []string // of the lines, each run of equal ones once
	for line := range strings.Lines(string(text)) {
		kind, _, _ := strings.Cut(line, ":")
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	assert.Equal(t, []string{"in stock", "failed", "refused", "failed", "refused", "in stock"}, kinds, "%s", text)
	assert.Contains(t, string(text), "refused: open, retry after")
	assert.True(t, strings.HasSuffix(string(text), "in stock: 42\nin stock: 42\nin stock: 42\n"), "%s", text)
}
