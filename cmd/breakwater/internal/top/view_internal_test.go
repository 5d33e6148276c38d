package top

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

// serveOpen serves a dashboard with an open breaker.
func serveOpen(t *testing.T) string {
	t.Helper()
	reg := new(policy.Registry)
	p, err := reg.New("inventory[red]", breaker.Config{MinCalls: 5, OpenFor: time.Minute})
	require.NoError(t, err)
	_, err = reg.New("catalogue", breaker.Config{})
	require.NoError(t, err)
	d, err := dashboard.New(reg, dashboard.Config{})
	require.NoError(t, err)
	for range 10 {
		_ = policy.Run(t.Context(), p, func(context.Context) error { return errors.New("boom") })
	}
	reg.ConfigRefused("2 (reload)", errors.New("breakwater.yaml:7:3: catalogue.breaker.OpenFr: there is no such setting"))
	srv := httptest.NewServer(d)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); d.Close() })
	return srv.URL
}

func TestView(t *testing.T) {
	c, err := NewClient(serveOpen(t), nil)
	require.NoError(t, err)
	screen := tcell.NewSimulationScreen("UTF-8")
	require.NoError(t, screen.Init())
	v := NewView(c, screen)
	ended := make(chan error, 1)
	go func() { ended <- v.Run(t.Context()) }()
	shows := func(what string) {
		t.Helper()
		text := ""
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			v.app.QueueUpdate(func() { text = contents(screen) }) // where it is drawn
			if strings.Contains(text, what) {
				return
			}
		}
		require.Fail(t, "it never showed "+what, "%s", text)
	}
	shows("1 of 2 in trouble")
	shows("breakwater.yaml:7:3: catalogue.breaker.OpenFr")
	screen.SetSize(140, 90) // now that it is initialised
	shows("inventory[red]")
	shows("What is open?")
	screen.InjectKey(tcell.KeyUp, 0, tcell.ModNone)
	screen.InjectKey(tcell.KeyEnter, 0, tcell.ModNone)
	shows("breaker open for")
	shows("last failures")
	screen.InjectKey(tcell.KeyRune, ' ', tcell.ModNone)
	shows("paused")
	screen.InjectKey(tcell.KeyEscape, 0, tcell.ModNone)
	shows("ten questions")
	screen.InjectKey(tcell.KeyRune, 'q', tcell.ModNone)
	require.NoError(t, <-ended)
}

func contents(s tcell.SimulationScreen) string {
	cells, width, _ := s.GetContents()
	var b strings.Builder
	for i, c := range cells {
		if i%width == 0 {
			b.WriteByte('\n')
		}
		b.Write(c.Bytes)
	}
	return b.String()
}

func TestByHand(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"bulkhead.Limit 3 (by hand, ann: why) until " + clock(5000), "retry.MaxAttempts 4 (by hand)"}, byHand([]dashboard.PolicySettings{
		{Policy: "bulkhead", Settings: []dashboard.EffectiveSetting{
			{Field: "Limit", Value: "3", Layer: "hand", Origin: "by hand, ann: why", Until: 5000}, {Field: "MaxWait", Value: "0s", Layer: "default"},
		}},
		{Policy: "retry", Settings: []dashboard.EffectiveSetting{{Field: "MaxAttempts", Value: "4", Layer: "hand", Origin: "by hand"}}},
	}))
}
