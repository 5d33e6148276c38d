package retry_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// Incident "orders": 1,000 calls per second of an inventory that takes 10 s for each,
// where callers wait for 500 ms and try twice more. The inventory's own counter saw 3,000
// per second, and 6,000 where the gateway in front tried once more; with a budget of 10 %
// that all its callers share, at most 1.2 times what is offered. Nobody backs off, as
// then.
//
// The runs follow one another: a thousand callers at a time are enough for the race
// detector, which crashes now and then above that.
func TestIncidentOrdersLoadAtADeadDependency(t *testing.T) {
	const (
		rate    = 1000 // per second
		seconds = 1
		offered = rate * seconds
		timeout = 500 * time.Millisecond
	)
	tenPercent := retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}
	tests := []struct {
		name    string
		gateway bool // tries once more
		budget  func() retry.BudgetSource
		least   float64 // times what is offered
		most    float64
	}{
		{name: "before", budget: func() retry.BudgetSource { return retry.NoBudget{} }, least: 3, most: 3},
		{name: "before, behind a gateway", gateway: true, budget: func() retry.BudgetSource { return retry.NoBudget{} }, least: 6, most: 6},
		{name: "after", budget: func() retry.BudgetSource { return tenPercent }, least: 1.09, most: 1.1},
		{name: "after, behind a gateway, one budget", gateway: true, budget: func() retry.BudgetSource {
			b, err := retry.NewBudget(tenPercent)
			if err != nil {
				t.Error(err)
			}
			return b
		}, least: 1.09, most: 1.1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var seen atomic.Int64 // by the inventory
			synctest.Test(t, func(t *testing.T) {
				inventory := func(ctx context.Context) (int, error) {
					seen.Add(1)
					slow := time.NewTimer(10 * time.Second)
					defer slow.Stop()
					select {
					case <-slow.C:
						return 1, nil
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				}
				budget := tt.budget()
				layers := []*policy.Pipeline{newPipeline(t, retry.Config{MaxAttempts: 3, BaseDelay: retry.Off, Budget: budget}, policy.Timeouts{Attempt: timeout})}
				if tt.gateway {
					layers = append([]*policy.Pipeline{newPipeline(t, retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: budget})}, layers...)
				}
				var wg sync.WaitGroup
				var failed atomic.Int64
				for range offered {
					wg.Go(func() {
						if _, err := through(t.Context(), inventory, layers...); errors.Is(err, context.DeadlineExceeded) {
							failed.Add(1)
						}
					})
					time.Sleep(time.Second / rate)
				}
				wg.Wait()
				assert.EqualValues(t, offered, failed.Load(), "every caller is told so, by the dependency's own error")
			})
			load := float64(seen.Load()) / offered
			t.Logf("load at the inventory: %.3f x offered", load)
			assert.GreaterOrEqual(t, load, tt.least)
			assert.LessOrEqual(t, load, tt.most)
		})
	}
}

var (
	errQuota     = policy.AsThrottled(errors.New("quota exceeded"), 0)
	errBusy      = policy.AsBusy(errors.New("busy"), 0)
	errMalformed = policy.AsPermanent(errors.New("malformed file"))
)

// vendor writes down when it was called.
type vendor struct {
	start time.Time
	mu    sync.Mutex
	calls []time.Duration
}

func newVendor() *vendor { return &vendor{start: time.Now()} }

// called returns how often the vendor was called before.
func (v *vendor) called() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls = append(v.calls, time.Since(v.start))
	return len(v.calls) - 1
}

// peak returns the largest number of calls in any stretch of a second.
func (v *vendor) peak() (most int) {
	first := 0
	for i, at := range v.calls {
		for at-v.calls[first] >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Incident "ocr" (c): the vendor allows 10 calls in a second. The retry loop stood inside
// what the limiter had let in, so retries went past it: 10 calls were 30. In a pipeline
// every attempt goes through the limiter.
func TestIncidentOCRRetriesPassTheLimiter(t *testing.T) {
	t.Parallel()
	limit := ratelimit.SlidingWindow{Limit: 10, Window: time.Second, MaxWait: time.Second, MaxWaiters: 16}
	run := func(call func(*vendor) func(context.Context) error) (peak int) {
		synctest.Test(t, func(t *testing.T) {
			v := newVendor()
			one := call(v)
			var wg sync.WaitGroup
			for range 100 { // 10 per second
				wg.Go(func() { _ = one(t.Context()) })
				time.Sleep(100 * time.Millisecond)
			}
			wg.Wait()
			peak = v.peak()
		})
		return peak
	}
	before := run(func(v *vendor) func(context.Context) error {
		p := newPipeline(t, limit)
		return func(ctx context.Context) error {
			return policy.Run(ctx, p, func(context.Context) error {
				for range 3 {
					v.called()
					time.Sleep(500 * time.Millisecond)
				}
				return errBusy
			})
		}
	})
	after := run(func(v *vendor) func(context.Context) error {
		p := newPipeline(t, limit, retry.Config{
			MaxAttempts: 3, Budget: retry.NoBudget{}, Busy: retry.Rule{Delay: 500 * time.Millisecond},
		})
		return func(ctx context.Context) error {
			return policy.Run(ctx, p, func(context.Context) error { v.called(); return errBusy })
		}
	})
	t.Logf("calls in one second, at the peak: %d before, %d after", before, after)
	assert.Equal(t, 30, before)
	assert.LessOrEqual(t, after, 10)
}

// The rules of incident "ocr" (d), by what the vendor says.
func ocrRules() retry.Config {
	return retry.Config{
		MaxAttempts: 2,
		Throttled:   retry.Rule{Retry: retry.Never},
		Busy:        retry.Rule{Delay: 500 * time.Millisecond},
		Timeout:     retry.Rule{Delay: retry.Off},
	}
}

func TestIncidentOCRRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		errs []error
		want []time.Duration // of calls
	}{
		{name: "quota: no retry", errs: []error{errQuota}, want: []time.Duration{0}},
		{name: "quota, and a time: none either", errs: []error{policy.AsThrottled(errQuota, time.Second)}, want: []time.Duration{0}},
		{name: "busy: once, after 500 ms", errs: []error{errBusy}, want: []time.Duration{0, 500 * time.Millisecond}},
		{name: "busy, for longer: not before", errs: []error{policy.AsBusy(errBusy, 2*time.Second)}, want: []time.Duration{0, 2 * time.Second}},
		{name: "timeout: once, at once", errs: []error{context.DeadlineExceeded}, want: []time.Duration{0, 0}},
		{name: "timeout, then busy: once is once", errs: []error{context.DeadlineExceeded, errBusy}, want: []time.Duration{0, 0}},
		{name: "busy, then quota", errs: []error{errBusy, errQuota}, want: []time.Duration{0, 500 * time.Millisecond}},
		{name: "malformed: never", errs: []error{errMalformed}, want: []time.Duration{0}},
		{name: "no right to: never", errs: []error{policy.AsPermanent(errors.New("forbidden"))}, want: []time.Duration{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, ocrRules())
				v := newVendor()
				err := policy.Run(t.Context(), p, func(context.Context) error {
					return tt.errs[min(v.called(), len(tt.errs)-1)]
				})
				last := tt.errs[min(len(tt.want), len(tt.errs))-1]
				assert.ErrorIs(t, err, last)
				assert.Equal(t, tt.want, v.calls)
			})
		})
	}
}

// Incident "ocr" (d): for 20 minutes, a file that the vendor cannot read was sent to it
// every 20 seconds, since an error was an error. It is one call.
func TestIncidentOCROneMalformedFile(t *testing.T) {
	t.Parallel()
	run := func(cfg retry.Config, err error) (calls int) {
		synctest.Test(t, func(t *testing.T) {
			v := newVendor()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			got := policy.Run(ctx, newPipeline(t, cfg), func(context.Context) error { v.called(); return err })
			assert.ErrorIs(t, got, err)
			calls = len(v.calls)
		})
		return calls
	}
	stubborn := retry.Config{
		MaxAttempts: retry.Unlimited, MaxDuration: 20 * time.Minute, Backoff: retry.Constant, BaseDelay: 20 * time.Second,
		MaxDelay: 20 * time.Second, Jitter: retry.NoJitter,
	}
	before, after, asConfigured := run(stubborn, errDown), run(stubborn, errMalformed), run(ocrRules(), errMalformed)
	t.Logf("calls in 20 minutes: %d before, %d after", before, after)
	assert.Equal(t, 60, before)
	assert.Equal(t, 1, after, "however stubborn the settings")
	assert.Equal(t, 1, asConfigured)
}
