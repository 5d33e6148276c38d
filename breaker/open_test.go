package breaker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// envoy#26758, #18950: the time out did not grow, and a host that had come back was
// never taken out again, or at once.
func TestCaseB70OpenTimesGrow(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := []struct {
		growth breaker.Growth
		want   []time.Duration
	}{
		{breaker.Linear, []time.Duration{60 * s, 120 * s, 180 * s, 240 * s, 300 * s, 300 * s}},
		{breaker.Exponential, []time.Duration{60 * s, 120 * s, 240 * s, 300 * s, 300 * s}},
	}
	for _, tt := range tests {
		t.Run(tt.growth.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, breaker.Config{
					FailureRatio: breaker.Off, ConsecutiveFailures: 5, Probes: 1,
					OpenFor: 60 * s, MaxOpenFor: 300 * s, OpenGrowth: tt.growth,
				})
				for i, want := range tt.want {
					// It has come back: that takes the full number again.
					for n := range 5 {
						require.Equal(t, "closed", look(t, p).State, "time %d, after %d failures", i+1, n)
						callMany(t, p, 1, errDown)
					}
					snap := look(t, p)
					require.Equal(t, "open", snap.State, "time %d", i+1)
					require.Equal(t, want, snap.RetryAfter, "time %d", i+1)
					requireRefused(t, call(t, p, nil), policy.ReasonOpen, want)
					time.Sleep(want)
					require.NoError(t, call(t, p, nil))
				}
				time.Sleep(300*s - 1)
				callMany(t, p, 5, errDown)
				require.Equal(t, 300*s, look(t, p).RetryAfter, "it was closed for less than ForgetAfter")
				time.Sleep(300 * s)
				require.NoError(t, call(t, p, nil))
				time.Sleep(300 * s)
				callMany(t, p, 5, errDown)
				assert.Equal(t, 60*s, look(t, p).RetryAfter, "it was well for long enough")
				assert.Equal(t, uint64(len(tt.want)+2), look(t, p).Opened)
			})
		})
	}
}

// A probe that fails makes the open time grow too, and one that succeeds does not make
// it forgotten.
func TestOpenTimeGrowsWithFailedProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1, OpenFor: time.Second, MaxOpenFor: 6 * time.Second, ForgetAfter: time.Minute})
		p := newPipeline(t, b)
		callMany(t, p, 5, errDown)
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 6 * time.Second, 6 * time.Second} {
			require.Equal(t, want, look(t, p).RetryAfter)
			time.Sleep(want)
			callMany(t, p, 1, errDown)
		}
		time.Sleep(6 * time.Second)
		require.NoError(t, call(t, p, nil))
		callMany(t, p, 5, errDown)
		require.Equal(t, 6*time.Second, look(t, p).RetryAfter)

		b.Reset()
		callMany(t, p, 5, errDown)
		require.Equal(t, time.Second, look(t, p).RetryAfter, "Reset forgets it")
		time.Sleep(time.Second)
		require.NoError(t, call(t, p, nil))
		b.Reset()
		callMany(t, p, 5, errDown)
		require.Equal(t, time.Second, look(t, p).RetryAfter, "also in the closed state")
	})
}

func TestOpenTimeIsJittered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var times []time.Duration
		for range 200 {
			p := newPipeline(t, breaker.Config{MinCalls: 1, Probes: 1, OpenFor: 4 * time.Second, MaxOpenFor: 8 * time.Second, OpenJitter: 0.25})
			callMany(t, p, 1, errDown)
			d := look(t, p).RetryAfter
			require.Greater(t, d, 3*time.Second)
			require.LessOrEqual(t, d, 4*time.Second)
			times = append(times, d)
			time.Sleep(d - 1)
			requireRefused(t, call(t, p, nil), policy.ReasonOpen, 1)
			time.Sleep(time.Nanosecond)
			callMany(t, p, 1, errDown) // what was told was the truth
			d = look(t, p).RetryAfter
			require.Greater(t, d, 6*time.Second)
			require.LessOrEqual(t, d, 8*time.Second, "jitter never exceeds the longest time")
		}
		var sum time.Duration
		seen := make(map[time.Duration]bool)
		for _, d := range times {
			sum += d
			seen[d] = true
		}
		assert.Len(t, seen, len(times), "every breaker has its own")
		assert.InDelta(t, 3.5, (sum / time.Duration(len(times))).Seconds(), 0.1)
	})
}

// The dependency's own wish lengthens the open time, up to a bound, and never shortens
// it.
func TestRetryAfterLengthensTheOpenTime(t *testing.T) {
	t.Parallel()
	const s = time.Second
	busy := func(d time.Duration) error { return policy.AsBusy(errors.New("503"), d) }
	tests := []struct {
		name  string
		cfg   breaker.Config
		calls []error // one each second
		want  time.Duration
		probe time.Duration // when a probe then ends like the last of the calls
	}{
		{"none", breaker.Config{}, []error{busy(0), busy(0)}, 5 * s, 5 * s},
		{"of the call that opens it", breaker.Config{}, []error{errDown, busy(30 * s)}, 30 * s, 30 * s},
		{"of a call before", breaker.Config{}, []error{busy(30 * s), errDown}, 29 * s, 5 * s},
		{"the latest end counts", breaker.Config{}, []error{busy(30 * s), busy(10 * s)}, 29 * s, 10 * s},
		{"shorter than the open time", breaker.Config{}, []error{errDown, busy(4 * s)}, 5 * s, 5 * s},
		{"a day", breaker.Config{}, []error{errDown, busy(24 * 3600 * s)}, 60 * s, 60 * s},
		{"a day, and a bound", breaker.Config{MaxRetryAfter: 10 * s}, []error{errDown, busy(24 * 3600 * s)}, 10 * s, 10 * s},
		{"ignored", breaker.Config{MaxRetryAfter: breaker.Off}, []error{errDown, busy(30 * s)}, 5 * s, 5 * s},
		{"never again, for this call", breaker.Config{}, []error{errDown, busy(-1)}, 5 * s, 5 * s},
		{"of a call that is no failure", breaker.Config{}, []error{policy.AsThrottled(errDown, 30*s), errDown, errDown}, 5 * s, 5 * s},
		{"in a window of calls", breaker.Config{LastCalls: 3}, []error{busy(30 * s), errDown}, 29 * s, 5 * s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.MinCalls, tt.cfg.Probes = 2, 2
				p := newPipeline(t, tt.cfg)
				for i, err := range tt.calls {
					if i > 0 {
						time.Sleep(s)
					}
					require.Error(t, call(t, p, err))
				}
				require.Equal(t, "open", look(t, p).State)
				require.Equal(t, tt.want, look(t, p).RetryAfter)
				time.Sleep(tt.want)

				require.Error(t, call(t, p, tt.calls[len(tt.calls)-1]))
				require.Equal(t, "open", look(t, p).State)
				assert.Equal(t, tt.probe, look(t, p).RetryAfter)
			})
		})
	}
}
