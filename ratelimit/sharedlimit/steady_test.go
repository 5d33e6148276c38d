package sharedlimit_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// Four nodes of which one has 70 % of the calls, below the limit of 6,000/s and above it: at
// least 50 calls for each trip, and a total within 2 %.
func TestLeasesAtASteadyRate(t *testing.T) {
	t.Parallel()
	for _, demand := range []int{5000, 9000} {
		t.Run(strconv.Itoa(demand), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate, burst = 6000, 600
				f := newFake(t, ratelimit.PerSecond(rate), burst)
				f.expires = 20 * time.Millisecond // a bucket that is nearly full
				var asked, passed atomic.Int64
				var wg sync.WaitGroup
				start := time.Now()
				var nodes []*sharedlimit.Limiter
				for _, share := range []int{7, 1, 1, 1} {
					l := live(t, f, ratelimit.PerSecond(rate), burst, sharedlimit.Settings{Nodes: 4, LeaseFor: 500 * time.Millisecond})
					nodes = append(nodes, l)
					interval := 10 * time.Second / time.Duration(demand*share)
					wg.Go(func() {
						for time.Since(start) < 6*time.Second {
							ok := allow(l)
							if time.Since(start) > time.Second { // nobody knew his rate, and there was a burst
								asked.Add(1)
								if ok {
									passed.Add(1)
								}
							}
							time.Sleep(interval)
						}
					})
				}
				time.Sleep(time.Second)
				before := f.asked()
				wg.Wait()
				trips := f.asked() - before
				want := float64(min(demand, rate) * 5)
				t.Logf("%d of %d calls passed, %.0f should have (%+.2f %%); %d trips, %.0f calls for each", passed.Load(), asked.Load(), want, 100*(float64(passed.Load())/want-1), trips, float64(asked.Load())/float64(trips))
				assert.InEpsilon(t, want, float64(passed.Load()), 0.02)
				assert.Greater(t, asked.Load(), int64(50*trips))
				for _, l := range nodes {
					closed(t, l)
				}
			})
		})
	}
}
