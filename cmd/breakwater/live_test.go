//go:build !race

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
)

// These play the demo at its full rate, one after the other; with the race detector
// that is too much for a small machine.

// interruptedSoon returns a context that ends as one that Ctrl-C ends, after the load
// has begun.
func interruptedSoon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDemoInterruptedPrintsWhatItHas(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run(interruptedSoon(t), []string{"demo", "--for", "1h", "--spans"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitInterrupted, code)
	assert.Regexp(t, `^dashboard: http://127\.0\.0\.1:\d+/breakwater/\nmetrics: http://127\.0\.0\.1:\d+/metrics\n$`, errOut.String())
	assert.Contains(t, out.String(), "time phase", "lines where there is no terminal")
	assert.Contains(t, out.String(), "at 240 requests per second, interrupted")
	assert.Contains(t, out.String(), "GET /price")
}

func TestDemoJSONIsAllThereIsOnStandardOutput(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run(interruptedSoon(t), []string{"demo", "--json", "--seed", "7"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitInterrupted, code)
	var r demo.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.False(t, dec.More())
	assert.True(t, r.Interrupted)
	assert.EqualValues(t, 7, r.Seed)
	assert.GreaterOrEqual(t, r.Rate, 200)
	assert.Positive(t, r.Protected.Real)
}

// The runs that the team of a login page had to script, against a limit of 1/s and one of
// 10/s, at full length.
func TestLoadRepeatsTheCaptchaRuns(t *testing.T) {
	t.Parallel()
	t.Run("2.5 per second for 12 s at 1/s", func(t *testing.T) {
		t.Parallel()
		r := runLoad(t, "--url", captcha(t, 1), "--rate", "2.5/s", "--for", "12s")
		require.Len(t, r.Timeline, 12)
		late := slack(r, 1)
		if late < 0.15 { // 0.2 tokens are left over in each second with an odd number
			late = 0
		}
		assert.InDelta(t, 12, r.Passed, 2*late)
		for _, s := range r.Timeline {
			assert.InDelta(t, 1, s.Passed, 2*late, "second %d", s.Second)
		}
	})
	t.Run("20 per second for 10 s at 10/s", func(t *testing.T) {
		t.Parallel()
		r := runLoad(t, "--url", captcha(t, 10), "--rate", "20/s", "--for", "10s")
		late := slack(r, 10)
		assert.InDelta(t, 100, r.Passed, 2+late)
		assert.Equal(t, 200, r.Passed+r.Refused)
		for _, s := range r.Timeline {
			assert.InDelta(t, 10, s.Passed, 1+2*late, "second %d", s.Second)
		}
	})
}
