package incidents_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/examples/incidents"
)

var update = flag.Bool("update", false, "write summary.txt, which the docs show")

func TestFind(t *testing.T) {
	t.Parallel()
	i, err := incidents.Find("captcha")
	require.NoError(t, err)
	assert.Equal(t, "captcha", i.Name)
	_, err = incidents.Find("capcha")
	assert.ErrorContains(t, err, `no incident "capcha": there are ["captcha"`)
}

// The figures themselves are asserted by the tests of each incident.
func TestSummary(t *testing.T) {
	t.Parallel()
	var results []*incidents.Result
	for _, i := range incidents.All() {
		r, err := i.Play()
		require.NoError(t, err, i.Name)
		require.NotEmpty(t, r.Headline.Name, i.Name)
		for _, c := range r.Charts {
			require.NotEmpty(t, c.Before, "%s: %s", i.Name, c.Title)
			require.NotEmpty(t, c.After, "%s: %s", i.Name, c.Title)
		}
		results = append(results, r)
	}
	var b bytes.Buffer
	require.NoError(t, incidents.WriteSummary(&b, results))
	assert.NotContains(t, b.String(), "OUT")
	if *update {
		require.NoError(t, os.WriteFile("summary.txt", b.Bytes(), 0o600))
	}
	golden, err := os.ReadFile("summary.txt")
	require.NoError(t, err)
	assert.Equal(t, string(golden), b.String(), "go test -update writes summary.txt anew")
}
