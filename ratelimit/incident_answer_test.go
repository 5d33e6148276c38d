package ratelimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// What users see of a refusal: 429 and when to come back, where it was an empty 200.
func TestIncidentCaptchaAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, guava(1))
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := policy.Do(r.Context(), p, succeed)
			if re, ok := errors.AsType[*policy.RejectedError](err); ok {
				if s, ok := re.RetryAfterSeconds(); ok {
					w.Header().Set("Retry-After", strconv.Itoa(s))
				}
				w.Header().Set("Content-Length", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		start, answers := time.Now(), map[int]int{}
		for range 50 {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/captcha", http.NoBody))
			answers[w.Code]++
			if w.Code == http.StatusTooManyRequests {
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
				assert.Equal(t, "0", w.Header().Get("Content-Length"))
				assert.Zero(t, w.Body.Len())
			}
		}
		assert.Equal(t, map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: 49}, answers)
		assert.Equal(t, start, time.Now(), "in no time")
	})
}

// The rate changes without a restart, and grants nothing by that.
func TestIncidentCaptchaChangeOfTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, guava(1))
		p := newPipeline(t, b)
		// 100 requests a second; the rate is 1/s for 10 s, 10/s for 10 s, and 1/s again,
		// and set anew at every tenth request.
		perSecond := make([]int, 30)
		start := time.Now()
		for i := range 3000 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * 10 * ms)))
			second := i / 100
			if i%10 == 0 {
				rate := 1
				if second/10 == 1 {
					rate = 10
				}
				require.NoError(t, b.SetLimit(ratelimit.PerSecond(float64(rate)), rate+1))
			}
			if _, err := policy.Do(t.Context(), p, succeed); err == nil {
				perSecond[second]++
			}
		}
		for s, n := range perSecond {
			want := 1
			if s/10 == 1 {
				want = 10
			}
			assert.InDelta(t, want, n, 1, "second %d", s)
		}
		assert.InDelta(t, 10+100+10, sum(perSecond), 1)
	})
}

// Refusals at once take no virtual time, and between 2 and 100 the burst makes no
// difference to what passes in a pipeline.
func TestIncidentAggregatorRefusesAtOnce(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{2, 100} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: burst})
			start, passed := time.Now(), 0
			for i := range 11_000 {
				at := time.Duration(i) * time.Second / 1100
				time.Sleep(time.Until(start.Add(at)))
				if _, err := policy.Do(t.Context(), p, succeed); err == nil {
					passed++
				}
				require.Equal(t, at, time.Since(start))
			}
			assert.InDelta(t, 10_000, passed, 100)
		})
	}
}

// Mistake (c): the retry loop ran outside the limiter. In a pipeline every attempt takes
// its token, whatever the order in which the policies are listed.
func TestIncidentOCRRetriesTakeTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ocrLanes())
		v := vendor{start: time.Now()}
		p := newPipeline(t, retry.Config{MaxAttempts: 3, BaseDelay: 100 * ms}, set.Lane("realtime"), bulkhead.Semaphore{Limit: 8})
		var wg sync.WaitGroup
		for range 600 {
			wg.Go(func() {
				_, _ = policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
					_, _ = v.scan(ctx)
					return 0, errors.New("vendor failed")
				})
			})
			time.Sleep(100 * ms)
		}
		wg.Wait()
		assert.LessOrEqual(t, v.most(), 10)
		assert.LessOrEqual(t, float64(len(v.calls)), 8+6*time.Since(v.start).Seconds(), "retries included")
	})
}

// Mistake (e): a token taken although no slot was free was lost. It is given back.
func TestIncidentOCRTokensComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ocrLanes())
		v := vendor{start: time.Now()}
		p := newPipeline(t, set.Lane("realtime"), bulkhead.Semaphore{Limit: 2})
		reasons := map[policy.Reason]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = policy.Do(t.Context(), p, v.scan) })
			synctest.Wait()
		}
		_, err := policy.Do(t.Context(), p, v.scan)
		reasons[rejected(t, err).Reason]++
		assert.Equal(t, map[policy.Reason]int{policy.ReasonConcurrency: 1}, reasons)
		assert.InDelta(t, 6, set.Lane("realtime").Snapshot(time.Now()).Limiter.Tokens, 0, "two of the eight are used")
		wg.Wait()
		assert.Len(t, v.calls, 2)
	})
}
