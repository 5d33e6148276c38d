package incidents_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/examples/incidents"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

func TestFind(t *testing.T) {
	t.Parallel()
	i, err := incidents.Find("captcha")
	require.NoError(t, err)
	assert.Equal(t, "captcha", i.Name)
	_, err = incidents.Find("capcha")
	assert.ErrorContains(t, err, `no incident "capcha": there are ["aggregator"`)
}

// The figures themselves are asserted by the tests of each incident, and the summary of all
// by that of the command.
func TestWriteSummary(t *testing.T) {
	t.Parallel()
	well, ill := &incidents.Result{Incident: "well"}, &incidents.Result{Incident: "ill"}
	for _, r := range []*incidents.Result{well, ill} {
		r.Row("calls", replay.Is(1000, 1000), replay.AtMost(10, 10))
		r.Head("calls a second")
	}
	ill.Row("waits", replay.None, replay.Is(1, 0))
	var b bytes.Buffer
	require.NoError(t, incidents.WriteSummary(&b, []*incidents.Result{well, ill}))
	assert.Equal(t, ""+
		"incident                  before  after  figures\n"+
		"--------  --------------  ------  -----  -------------\n"+
		"well      calls a second  1,000   10     1, all inside\n"+
		"ill       calls a second  1,000   10     2, 1 OUT\n", b.String())
}
