package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunWritesEveryDashboard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, run([]string{dir}))
	written, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, written, 2)
	for _, name := range written {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("../../dashboards", filepath.Base(name)))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
}

func TestRunWantsOneDirectory(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(nil), "want the directory to write to, have 0 arguments")
	require.ErrorContains(t, run([]string{"a", "b"}), "have 2 arguments")
	require.ErrorIs(t, run([]string{filepath.Join(t.TempDir(), "none")}), os.ErrNotExist)
}
