package ratelimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// What is given back counts as it would have at the rates that there were meanwhile: a
// rate that has been lowered makes nobody's tokens worth more.
func TestRefundAcrossAChangeOfTheRate(t *testing.T) {
	t.Parallel()
	for _, k := range boundKinds {
		if _, window := map[string]bool{"fixed window": true, "sliding log": true, "sliding counter": true, "all": true}[k.name]; window {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				trial := trial{t, k}
				conf := limit{tokens: 10, per: time.Second}
				l := trial.new(conf)
				n := k.burst(conf)
				refund := func(taken time.Time) {
					l.Refund(taken, n)
				}
				require.True(t, l.AllowN(n))
				taken := time.Now()
				time.Sleep(time.Duration(n) * 100 * ms) // all of them have arrived again
				drain(t, l)
				require.NoError(t, l.SetRate(ratelimit.Every(time.Hour)))
				require.NoError(t, l.SetRate(ratelimit.Every(2*time.Hour)))
				refund(taken)
				assert.Zero(t, drain(t, l), "they would have overflowed")

				// Without a limit nothing is counted, so nothing is given back either.
				require.NoError(t, l.SetRate(ratelimit.PerSecond(1)))
				time.Sleep(time.Minute)
				drain(t, l)
				if k.name == "feedback" {
					return // its rate is finite
				}
				require.NoError(t, l.SetRate(ratelimit.PerSecond(math.Inf(1))))
				require.True(t, l.AllowN(n))
				taken = time.Now()
				require.NoError(t, l.SetRate(ratelimit.Every(time.Hour)))
				drain(t, l)
				time.Sleep(1) //nolint:staticcheck // the shortest time there is
				refund(taken)
				assert.LessOrEqual(t, drain(t, l), n)
			})
		})
	}
}

// Tokens of a time before all times are not given back, nor do they bring anything.
func TestRefundOfLongAgo(t *testing.T) {
	t.Parallel()
	for _, k := range boundKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := trial{t, k}.new(limit{tokens: 10, per: time.Second})
				drain(t, l)
				time.Sleep(time.Minute)
				drain(t, l)
				for _, taken := range []time.Time{{}, time.Unix(-1<<60, 0), time.Unix(0, 0)} {
					l.Refund(taken, 5)
					assert.Zero(t, drain(t, l), "%v", taken)
				}
			})
		})
	}
}

// A window takes back its own only, also after its limit has changed.
func TestWindowRefundAcrossAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(t, ratelimit.FixedWindow{Limit: 2, Window: time.Second})
		time.Sleep(1500 * ms)
		require.True(t, w.AllowN(2))
		taken := time.Now()
		time.Sleep(time.Second)
		require.True(t, w.AllowN(2))
		require.NoError(t, w.SetLimit(2, 2*time.Second))
		w.Refund(taken, 2)
		assert.False(t, w.Allow(), "they were of the window before")
		w.Refund(time.Now(), 1)
		assert.True(t, w.Allow())
		assert.False(t, w.Allow())
	})
}
