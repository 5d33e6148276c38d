package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		figure replay.Figure
		text   string
		want   string
		ok     bool
	}{
		{replay.None, "-", "", true},
		{replay.Seen(1234567), "1,234,567", "", true},
		{replay.Is(3, 3), "3", "3", true},
		{replay.Is(3, 4), "3", "4", false},
		{replay.Near(98, 100, 2), "98", "100 +/- 2", true},
		{replay.Near(97, 100, 2), "97", "100 +/- 2", false},
		{replay.Near(103, 100, 2), "103", "100 +/- 2", false},
		{replay.AtMost(1.084, 1.2), "1.08", "<= 1.2", true},
		{replay.AtMost(1.3, 1.2), "1.3", "<= 1.2", false},
		{replay.AtMost(math.NaN(), 1.2), "NaN", "<= 1.2", false},
		{replay.AtLeast(5*time.Second, 4*time.Second), "5s", ">= 4s", true},
		{replay.AtLeast(3*time.Second, 4*time.Second), "3s", ">= 4s", false},
		{replay.Between(2050701*time.Microsecond, 2*time.Second, 2100*time.Millisecond), "2.051s", "2s to 2.1s", true},
		{replay.Between(1, 2, 3), "1", "2 to 3", false},
		{replay.Between(4, 2, 3), "4", "2 to 3", false},
		{replay.Says("slow", "slow"), "slow", "slow", true},
		{replay.Says("slow", "errors"), "slow", "errors", false},
	}
	for _, tt := range tests {
		row := replay.Row{Name: "x", After: tt.figure}
		assert.Equal(t, tt.text, tt.figure.String())
		assert.Equal(t, tt.want, row.Expected())
		assert.Equal(t, tt.ok, row.OK(), "%s: %s", tt.text, tt.want)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := &replay.Result{Incident: "x"}
	r.Row("calls", replay.Is(3, 3), replay.AtMost(1, 2))
	r.Row("waits", replay.None, replay.Is(time.Second, 0))
	assert.False(t, r.OK())
	assert.Len(t, r.Out(), 1)
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	assert.Equal(t, ""+
		"figure      expected              before  after\n"+
		"----------  --------------------  ------  -----\n"+
		"calls       before 3, after <= 2  3       1\n"+
		"OUT: waits  0s                    -       1s\n", b.String())
	text, err := json.Marshal(r.Rows[1])
	require.NoError(t, err)
	assert.JSONEq(t, `{"figure": "waits", "expected": "0s", "after": "1s", "values": [null, 1], "ok": false}`, string(text))
}

func TestLogAndGauge(t *testing.T) {
	t.Parallel()
	err := replay.Run(func(*replay.World) {
		log, busy := replay.NewLog(), replay.NewGauge()
		replay.Traffic{Every: 250 * time.Millisecond, From: time.Millisecond, Length: 2 * time.Second}.Offer(func(i int) {
			arrived := time.Now()
			busy.Add(1)
			defer busy.Add(-1)
			time.Sleep(time.Duration(i+1) * 100 * time.Millisecond)
			log.Add(replay.Outcome(i%2), arrived)
		})
		assert.Equal(t, 4, log.Total(replay.Served))
		assert.Equal(t, 8, log.Total())
		assert.Equal(t, []int{3, 3, 2}, log.PerSecond(3))
		assert.Equal(t, 3, log.From(time.Second, 2*time.Second).Total())
		assert.Equal(t, 4, log.Arrived(time.Second, 2*time.Second).Total())
		assert.Equal(t, 400*time.Millisecond, log.Quantile(0.5))
		assert.InDelta(t, 0.5, log.Within(450*time.Millisecond), 0)
		first, ok := log.First(replay.Degraded)
		assert.True(t, ok)
		assert.Equal(t, 451*time.Millisecond+1, first)
		_, ok = log.First(replay.Failed)
		assert.False(t, ok)
		assert.Equal(t, 2551*time.Millisecond+7, log.Last())
		assert.Equal(t, 3, log.Most())
		assert.Equal(t, []float64{300, 500, 700}, rounded(log.Latency("", 3, 1, replay.Served).Y))
		assert.Equal(t, []float64{2, 3, 2}, busy.Line("", 3).Y)
		at, ok := busy.Reached(3)
		assert.True(t, ok)
		assert.Equal(t, 1751*time.Millisecond+7, at)
		assert.Equal(t, 3, busy.Peak())
	})
	require.NoError(t, err)
}

func rounded(ms []float64) []float64 {
	for i := range ms {
		ms[i] = math.Round(ms[i])
	}
	return ms
}

func TestWhatGoesWrongEndsTheReplay(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	played := 0
	err := replay.Run(
		func(*replay.World) { played++ },
		func(w *replay.World) { w.Must(broken) },
		func(*replay.World) { played++ },
	)
	require.ErrorIs(t, err, broken)
	assert.Equal(t, 1, played)

	err = replay.Run(func(w *replay.World) {
		w.Pipelines([]byte("dependencies: {x: {policies: [{breakr: {}}]}}"), replay.Setup{})
	})
	assert.ErrorContains(t, err, "breakr")
}
