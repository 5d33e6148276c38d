package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// An order service sends 1000 calls/s to an inventory that has come back. Without a
// ramp all of them reach it in the instant in which the last probe succeeds; with one
// the load rises along a line.
func TestOrdersRecovery(t *testing.T) {
	t.Parallel()
	const (
		rate = 1000 // calls per second
		step = 500 * ms
	)
	// load returns the calls that reached the dependency in each step, from the first
	// probe on.
	load := func(t *testing.T, cfg breaker.Config, length time.Duration) (perStep []int) {
		t.Helper()
		cfg.MinCalls, cfg.Window, cfg.OpenFor = 20, 2*time.Second, 5*time.Second
		p := newPipeline(t, cfg)
		callMany(t, p, 20, errDown)
		time.Sleep(5 * time.Second)
		for begin := time.Now(); time.Since(begin) < length; time.Sleep(time.Second / rate) {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
				i := int(time.Since(begin) / step)
				for len(perStep) <= i {
					perStep = append(perStep, 0)
				}
				perStep[i]++
				return 1, nil
			})
		}
		require.Equal(t, "closed", look(t, p).State)
		return perStep
	}
	synctest.Test(t, func(t *testing.T) {
		all := int(rate * step.Seconds())
		assert.Equal(t, []int{all, all, all, all}, load(t, breaker.Config{}, 2*time.Second), "a step")

		got := load(t, breaker.Config{RampFor: 10 * time.Second, RampStart: 0.1}, 12*time.Second)
		t.Log("calls per 500 ms:", got)
		require.Len(t, got, 24)
		for i, n := range got {
			// The share at the middle of the step. Three probes come on top.
			want := float64(all)
			if i < 20 {
				want *= 0.1 + 0.9*(float64(i)+0.5)/20
			}
			assert.InDelta(t, want, n, 5, "step %d", i)
		}
	})
}

func TestRecovering(t *testing.T) {
	t.Parallel()
	recovering := func(t *testing.T, cfg breaker.Config) (*breaker.Breaker, *policy.Pipeline) {
		t.Helper()
		cfg.MinCalls, cfg.Probes, cfg.RampFor = 5, 1, 10*time.Second
		b := newBreaker(t, cfg)
		p := newPipeline(t, b)
		callMany(t, p, 5, errDown)
		time.Sleep(5 * time.Second)
		require.NoError(t, call(t, p, nil))
		require.Equal(t, "recovering", look(t, p).State)
		return b, p
	}
	// offer makes n calls and returns how many ran.
	offer := func(t *testing.T, p *policy.Pipeline, n int, err error) (ran int) {
		t.Helper()
		for range n {
			_, got := policy.Do(t.Context(), p, func(context.Context) (int, error) { ran++; return 1, err })
			if got != err { //nolint:errorlint // identity is what is asked
				requireRefused(t, got, policy.ReasonRamp, 0)
			}
		}
		return ran
	}
	t.Run("share", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b, p := recovering(t, breaker.Config{RampStart: 0.2})
			assert.InDelta(t, 0.2, look(t, p).Share, 1e-9)
			assert.InDelta(t, 200, offer(t, p, 1000, nil), 2)
			time.Sleep(5 * time.Second)
			assert.InDelta(t, 0.6, look(t, p).Share, 1e-9)
			assert.InDelta(t, 600, offer(t, p, 1000, nil), 2)
			s := look(t, p)
			assert.InDelta(t, 800, s.Calls, 4, "what runs is counted")
			time.Sleep(5 * time.Second)
			s = look(t, p)
			assert.Equal(t, "closed", s.State, "without traffic")
			assert.Equal(t, breaker.WhyRampEnded, s.Why)
			assert.Equal(t, breaker.Closed, b.State())
			assert.InDelta(t, 600, s.Calls, 2, "the window goes on: the first calls of the ramp have left it")
			assert.Equal(t, 1000, offer(t, p, 1000, nil))
		})
	})
	t.Run("failures open it again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b, p := recovering(t, breaker.Config{})
			time.Sleep(2 * time.Second)
			flying, err := b.Acquire()
			for err != nil { // the next that is let through
				flying, err = b.Acquire()
			}
			ran := 0
			for look(t, p).State == "recovering" {
				ran += offer(t, p, 1, errDown)
			}
			assert.Equal(t, 5, ran, "MinCalls")
			s := look(t, p)
			assert.Equal(t, "open", s.State)
			assert.Equal(t, breaker.WhyFailureRatio, s.Why)
			assert.False(t, flying.Done(policy.Success))
		})
	})
	t.Run("calls of the ramp count when it has ended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b, p := recovering(t, breaker.Config{RampStart: 0.99})
			flying := make([]breaker.Permit, 4)
			for i := range flying {
				var err error
				flying[i], err = b.Acquire()
				require.NoError(t, err)
			}
			time.Sleep(11 * time.Second)
			require.NoError(t, call(t, p, nil))
			require.Equal(t, breaker.Closed, b.State())
			for i := range flying {
				require.Equal(t, breaker.Closed, b.State())
				assert.True(t, flying[i].Done(policy.Failure), "they are not late")
			}
			s := look(t, p)
			assert.Equal(t, "open", s.State)
			assert.Equal(t, [2]uint64{5, 4}, [2]uint64{s.Calls, s.Failures})
		})
	})
	t.Run("nobody is kept from waiting by a ramp", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b, _ := recovering(t, breaker.Config{})
			asked := 0
			p := newPipeline(t, b, waiting{&asked})
			offer(t, p, 10, nil)
			assert.Equal(t, 10, asked, "Peek cannot tell")
		})
	})
}
