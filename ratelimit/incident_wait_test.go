package ratelimit_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// frontend has so many workers. A request holds one while it is served, and waits for one
// while there is none.
type frontend struct {
	workers chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	served  []time.Duration // time from arrival to answer
	at      []time.Duration // time of the answer
	start   time.Time
	full    time.Duration // when all workers were busy for the first time
	peak    int
	aborted int
}

func newFrontend(workers int) *frontend {
	return &frontend{workers: make(chan struct{}, workers), start: time.Now(), full: -1}
}

// request serves one request, unless it has found no worker within a time.
func (s *frontend) request(handle func() bool) {
	s.wg.Go(func() {
		arrived := time.Now()
		select {
		case s.workers <- struct{}{}:
		case <-time.After(10 * time.Second):
			s.mu.Lock()
			s.aborted++
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		s.peak = max(s.peak, len(s.workers))
		if len(s.workers) == cap(s.workers) && s.full < 0 {
			s.full = time.Since(s.start)
		}
		s.mu.Unlock()
		ok := handle()
		<-s.workers
		if ok {
			s.mu.Lock()
			s.served = append(s.served, time.Since(arrived))
			s.at = append(s.at, time.Since(s.start))
			s.mu.Unlock()
		}
	})
}

// offer sends requests at an even spacing, each a moment after a whole multiple of it.
func offer(spacing, offset, length time.Duration, request func()) {
	start := time.Now()
	for at := offset; at < length; at += spacing {
		time.Sleep(time.Until(start.Add(at)))
		request()
	}
}

func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[int(p*float64(len(ds)-1))]
}

// The limiter that became the amplifier: callers wait blindly for up to 3 s for one of 2
// tokens per second, each on one of 200 workers.
func TestIncidentCaptchaBlindWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := make(chan struct{}, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				time.Sleep(500 * ms)
				select {
				case tokens <- struct{}{}:
				default:
				}
			}
		}()
		time.Sleep(40 * time.Second) // the stall; the tokens are there when it ends
		captcha, healthy := newFrontend(200), newFrontend(0)
		healthy.workers = captcha.workers
		var wg sync.WaitGroup
		wg.Go(func() {
			offer(10*ms, 0, 20*time.Second, func() {
				captcha.request(func() bool {
					select {
					case <-tokens:
						time.Sleep(5 * ms)
						return true
					case <-time.After(3 * time.Second):
						return false
					}
				})
			})
		})
		wg.Go(func() {
			offer(50*ms, 3*ms, 20*time.Second, func() {
				healthy.request(func() bool {
					time.Sleep(20 * ms)
					return true
				})
			})
		})
		wg.Wait()
		captcha.wg.Wait()
		healthy.wg.Wait()
		assert.GreaterOrEqual(t, captcha.full, 2*time.Second)
		assert.LessOrEqual(t, captcha.full, 2100*ms)
		assert.Greater(t, percentile(healthy.served, 0.99), time.Second, "a healthy endpoint stops answering")
		cancel()
		time.Sleep(time.Second)
	})
}

// The same wait, but one that knows what it waits for, holds at most the six that can be
// served in 3 s, and refuses the others before they wait.
func TestIncidentCaptchaBoundedWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(2), MaxWait: 3 * time.Second})
		assert.Equal(t, 6, p.Config().MaxWaiters)
		captcha := newFrontend(200)
		var refused atomic.Int64
		offer(10*ms, 0, 20*time.Second, func() {
			captcha.request(func() bool {
				start := time.Now()
				if err := p.Wait(t.Context(), 1); err != nil {
					refused.Add(1)
					assert.Equal(t, start, time.Now(), "refused before it waits")
					return false
				}
				return true
			})
		})
		captcha.wg.Wait()
		assert.Equal(t, 7, captcha.peak, "six wait, and one that is about to be refused")
		assert.Len(t, captcha.served, 2*20+6)
		assert.Equal(t, int64(2000-2*20-6), refused.Load())
	})
}

// What fixed it: never wait, 10 per second, a timeout of 1 s on the store and a semaphore
// of 20.
func TestIncidentCaptchaAfter(t *testing.T) {
	t.Parallel()
	// run returns the latencies of the healthy endpoint, with and without captcha
	// traffic.
	run := func(t *testing.T, flood bool) time.Duration {
		t.Helper()
		start := time.Now()
		stalled := func() bool { return time.Since(start) < 40*time.Second }
		limit := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 11, Initial: 1})
		p := newPipeline(t, limit, bulkhead.Semaphore{Limit: 20}, policy.Timeouts{Attempt: time.Second})
		captcha, healthy := newFrontend(200), newFrontend(0)
		healthy.workers = captcha.workers
		var inCaptcha, most, heldRefused atomic.Int64
		request := func() {
			captcha.request(func() bool {
				n := inCaptcha.Add(1)
				defer inCaptcha.Add(-1)
				for {
					m := most.Load()
					if n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				arrived := time.Now()
				_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
					if stalled() {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					time.Sleep(5 * ms)
					return 1, nil
				})
				var re *policy.RejectedError
				if asRejected(err, &re) && time.Since(arrived) > 0 {
					heldRefused.Add(1)
				}
				return err == nil
			})
		}
		var wg sync.WaitGroup
		if flood {
			wg.Go(func() {
				offer(50*ms, 0, 40*time.Second, request) // twice what is let in
				offer(10*ms, ms, 20*time.Second, request)
			})
		}
		wg.Go(func() {
			offer(50*ms, 3*ms, 60*time.Second, func() {
				healthy.request(func() bool {
					time.Sleep(20 * ms)
					return true
				})
			})
		})
		wg.Wait()
		captcha.wg.Wait()
		healthy.wg.Wait()
		if flood {
			assert.Zero(t, heldRefused.Load(), "no worker is held by a call that is refused")
			assert.LessOrEqual(t, most.Load(), int64(21), "20, and one that is about to be refused")
			perSecond := make([]int, 61)
			for _, at := range captcha.at {
				perSecond[int(at.Seconds())]++
			}
			assert.Zero(t, sum(perSecond[:40]), "nothing is served during the stall")
			assert.LessOrEqual(t, perSecond[40], 10+11, "no more than the stored burst on top")
			for s := 41; s < 60; s++ {
				assert.InDelta(t, 10, perSecond[s], 1, "second %d", s)
			}
		}
		return percentile(healthy.served, 0.99)
	}
	synctest.Test(t, func(t *testing.T) {
		alone, beside := run(t, false), run(t, true)
		assert.LessOrEqual(t, beside, alone*3/2)
	})
}

func asRejected(err error, re **policy.RejectedError) bool {
	e, ok := err.(*policy.RejectedError) //nolint:errorlint // a refusal of a pipeline is not wrapped
	*re = e
	return ok
}

// Pacing: 1,000 per second, up to 2 s of waiting, 1,100 offered for half a minute.
func TestIncidentAggregatorPacing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1000), MaxWait: 2 * time.Second, MaxWaiters: 2500})
		pipeline := newPipeline(t, p)
		start := time.Now()
		var mu sync.Mutex
		type release struct{ offered, at time.Duration }
		var released []release
		refused := 0
		firstRefused := time.Duration(-1)
		var wg sync.WaitGroup
		peak := 0
		for i := range 33_000 {
			at := time.Duration(i) * time.Second / 1100
			time.Sleep(time.Until(start.Add(at)))
			wg.Go(func() {
				_, err := policy.Do(t.Context(), pipeline, succeed)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					released = append(released, release{at, time.Since(start)})
					return
				}
				refused++
				assert.Equal(t, at, time.Since(start), "a refusal takes no time")
				if firstRefused < 0 {
					firstRefused = at
				}
			})
			if i%10 == 0 {
				peak = max(peak, p.Snapshot(time.Now()).Limiter.Waiting)
			}
		}
		wg.Wait()
		assert.InDelta(t, 20*time.Second, firstRefused, float64(20*ms))
		assert.InDelta(t, 32_000, len(released), 2)
		assert.InDelta(t, 1_000, refused, 2)
		assert.InDelta(t, 2_000, peak, 2)
		slices.SortFunc(released, func(a, b release) int { return int(a.at - b.at) })
		assert.InDelta(t, 32*time.Second, released[len(released)-1].at, float64(2*ms))
		worst := time.Duration(0)
		for i, r := range released {
			if i >= 1000 {
				require.GreaterOrEqual(t, r.at-released[i-1000].at, time.Second, "never more than 1,000 in any second")
			}
			// The delay grows smoothly: by a tenth of the time that passes, until it is
			// 2 s.
			delay := r.at - r.offered
			require.InDelta(t, min(float64(r.offered)/10, float64(2*time.Second)), delay, float64(3*ms))
			worst = max(worst, delay)
		}
		assert.LessOrEqual(t, worst, 2*time.Second)
	})
}
