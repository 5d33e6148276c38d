package otelx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// lines is a slog.Logger that keeps its lines, without their time.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns the lines since it was last called.
func (l *lines) take() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		list = append(list, strings.TrimSpace(line))
	}
	l.b.Reset()
	return list
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func logger(tb testing.TB, cfg otelx.LoggerConfig) (*otelx.Logger, *lines) {
	tb.Helper()
	out := &lines{}
	cfg.Logger = out.logger()
	l, err := otelx.NewLogger(cfg)
	require.NoError(tb, err)
	return l, out
}

// One line for each change, and of refusals the first and how many more.
func TestLoggerFollowsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, out := logger(t, otelx.LoggerConfig{})
		var reg policy.Registry
		reg.Use(l)
		b, err := breaker.New("breaker", breaker.Config{MinCalls: 2, OpenFor: 30 * time.Second, Probes: 1})
		require.NoError(t, err)
		p := add(t, &reg, "inventory", b, answer{name: "stale"})
		for range 1000 {
			_, _ = policy.Do(t.Context(), p, script(errSick))
		}
		assert.Equal(t, []string{
			`level=INFO msg="breakwater: fallback answered" dependency=inventory policy=stale outcome=failure`,
			`level=WARN msg="breakwater: state changed" dependency=inventory policy=breaker from=closed to=open why=failure_ratio calls=2 failures=2 slow=0 figure=1 threshold=0.5 retry_after=30s`,
			`level=WARN msg="breakwater: call refused" dependency=inventory policy=breaker reason=open retry_after=30s`,
		}, out.take())
		time.Sleep(10*time.Second + 1)
		assert.ElementsMatch(t, []string{
			`level=INFO msg="breakwater: fallback answered" dependency=inventory policy=stale outcome=failure suppressed=999 interval=10s`,
			`level=WARN msg="breakwater: call refused" dependency=inventory policy=breaker reason=open suppressed=997 interval=10s`,
		}, out.take())
		time.Sleep(time.Minute)
		assert.Empty(t, out.take(), "nothing happened")
		_, _ = policy.Do(t.Context(), p, script())
		got := out.take()
		require.Len(t, got, 2)
		assert.Contains(t, got[0], "from=open to=half_open")
		assert.Contains(t, got[1], "from=half_open to=closed")

		b.Observe("drill", time.Hour)
		assert.Equal(t, []string{`level=INFO msg="breakwater: mode changed" dependency=inventory policy=breaker from=closed to=closed why=observed note=drill retry_after=1h0m0s`}, out.take())
		reg.ConfigApplied("rev 7")
		reg.ConfigRefused("rev 8", errors.New("line 3: unknown field"))
		assert.Equal(t, []string{
			`level=INFO msg="breakwater: configuration applied" version=1 config="rev 7"`,
			`level=ERROR msg="breakwater: configuration refused" version=1 config="rev 8" error="line 3: unknown field"`,
		}, out.take())
	})
}

// The line of a refusal says which lane and which limit.
func TestLoggerNamesTheLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, out := logger(t, otelx.LoggerConfig{Interval: time.Second})
		p := pipeline(t, "ocr", l, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
			{Name: "realtime", Rate: ratelimit.PerSecond(1), Burst: 1, Priority: policy.PriorityHigh},
			{Name: "batch", Rate: ratelimit.PerSecond(1), Burst: 1},
		}})
		for _, lane := range []string{"realtime", "realtime", "batch", "batch", "batch"} {
			_, _ = policy.Do(ratelimit.WithLane(t.Context(), lane), p, script())
		}
		assert.Equal(t, []string{
			`level=WARN msg="breakwater: call refused" dependency=ocr policy=lanes reason=rate lane=realtime retry_after=1s`,
			`level=WARN msg="breakwater: call refused" dependency=ocr policy=lanes reason=rate lane=batch retry_after=1s`,
		}, out.take())
		require.NoError(t, l.Close())
		assert.Equal(t, []string{`level=WARN msg="breakwater: call refused" dependency=ocr policy=lanes reason=rate lane=batch suppressed=1 interval=1s`}, out.take(), "nothing is lost")
		time.Sleep(time.Hour)
		assert.Empty(t, out.take())
		for range 3 {
			_, _ = policy.Do(t.Context(), p, script())
		}
		assert.Len(t, out.take(), 2, "after Close, one by one")
	})
}

func TestLoggerHidesErrorsAndKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, shown := range []bool{false, true} {
			l, out := logger(t, otelx.LoggerConfig{ErrorText: shown})
			p := pipeline(t, "dep", l, answer{name: "stale", err: errSick}, shadow(),
				breaker.Keyed{Config: breaker.Config{MinCalls: 1}})
			_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Key: "user-17"}), p, script(errSick))
			got := strings.Join(out.take(), "\n")
			assert.NotContains(t, got, "user-17")
			assert.Contains(t, got, "keyed=true")
			assert.Contains(t, got, `level=INFO msg="breakwater: call would have been refused" dependency=dep policy=ratelimit reason=rate`)
			assert.Equal(t, shown, strings.Contains(got, "4711"), got)
			require.NoError(t, l.Close())
		}
	})
}

// Negative writes every one.
func TestLoggerWithoutSampling(t *testing.T) {
	t.Parallel()
	l, out := logger(t, otelx.LoggerConfig{Interval: -1})
	p := pipeline(t, "dep", l, refusing(policy.ReasonRate, policy.Never))
	for range 3 {
		_, _ = policy.Do(t.Context(), p, script())
	}
	assert.Len(t, out.take(), 3)
}

func TestLoggerConfig(t *testing.T) {
	t.Parallel()
	l, err := otelx.NewLogger(otelx.LoggerConfig{})
	require.NoError(t, err)
	assert.Equal(t, 10*time.Second, l.Config().Interval)
	require.NoError(t, otelx.LoggerConfig{}.Validate())
	pipeline(t, "dep", otelx.LoggerConfig{})
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingHandler) Handle(context.Context, slog.Record) error { panic("full") }

func TestLoggerSurvivesItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := otelx.NewLogger(otelx.LoggerConfig{Logger: slog.New(panickingHandler{})})
		require.NoError(t, err)
		p := pipeline(t, "dep", l, refusing(policy.ReasonRate, 0))
		for range 2 {
			_, err = policy.Do(t.Context(), p, script())
			require.ErrorIs(t, err, policy.ErrRejected)
		}
		time.Sleep(time.Minute) // on the timer's goroutine too
	})
}

func TestLoggerConcurrentSafe(t *testing.T) {
	t.Parallel()
	l, out := logger(t, otelx.LoggerConfig{Interval: time.Hour})
	p := pipeline(t, "dep", l, refusing(policy.ReasonRate, 0))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				_, _ = policy.Do(t.Context(), p, script())
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	got := out.take()
	require.Len(t, got, 2)
	assert.Contains(t, got[1], "suppressed=1999")
}
