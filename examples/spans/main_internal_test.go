package main

import (
	"io"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program, in virtual time, prints what the tutorial shows. It is not parallel: it
// changes os.Stdout.
func TestProgram(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	synctest.Test(t, func(t *testing.T) { assert.NoError(t, run(t.Context())) })

	_, err = out.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	want, err := os.ReadFile("output.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text))
}
