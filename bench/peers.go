package bench

import (
	"context"
	"errors"
	"io"
	"log"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	fsfallback "github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// handStack is what people write without a library of this kind: x/time/rate,
// x/sync/semaphore and gobreaker around the call, a fallback value behind it.
type handStack struct {
	limiter *rate.Limiter
	permits *semaphore.Weighted
	breaker *gobreaker.CircuitBreaker[int]
}

func newHandStack() *handStack {
	return &handStack{
		limiter: rate.NewLimiter(1e12, 1<<30),
		permits: semaphore.NewWeighted(1000),
		breaker: gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
			Interval: 10 * time.Second,
			Timeout:  time.Hour,
			ReadyToTrip: func(c gobreaker.Counts) bool {
				return c.Requests >= 20 && float64(c.TotalFailures) >= 0.5*float64(c.Requests)
			},
		}),
	}
}

func (h *handStack) call(fn func() (int, error)) (int, error) {
	if !h.limiter.Allow() {
		return -1, nil
	}
	if !h.permits.TryAcquire(1) {
		return -1, nil
	}
	defer h.permits.Release(1)
	v, err := h.breaker.Execute(fn)
	if err != nil {
		return -1, nil
	}
	return v, nil
}

// newFailsafe composes the same five policies in failsafe-go.
func newFailsafe() failsafe.Executor[int] {
	return failsafe.With[int](
		fsfallback.NewWithResult(-1),
		retrypolicy.NewBuilder[int]().WithMaxAttempts(3).AbortOnErrors(circuitbreaker.ErrOpen).ReturnLastFailure().Build(),
		ratelimiter.NewBursty[int](1<<30, time.Second),
		fsbulkhead.New[int](1000),
		circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(time.Hour).Build(),
	)
}

// callFailsafe runs fn under the caller's context, as our calls do.
func callFailsafe(ctx context.Context, ex failsafe.Executor[int], fn func(context.Context) (int, error)) (int, error) {
	return ex.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[int]) (int, error) { //nolint:contextcheck // e has it
		return fn(e.Context())
	})
}

// newGoZero returns go-zero's breaker, which is one policy of the five.
func newGoZero() gozero.Breaker {
	logx.Disable()
	return gozero.NewBreaker()
}

// openGoZero makes the breaker refuse nearly everything.
func openGoZero(b gozero.Breaker) {
	for range 20000 {
		_ = b.Do(func() error { return errDependency })
	}
}

// newHystrix configures a hystrix command: breaker, semaphore, timeout, fallback.
func newHystrix(name string) string {
	log.SetOutput(io.Discard)
	hystrix.ConfigureCommand(name, hystrix.CommandConfig{
		Timeout: 60000, MaxConcurrentRequests: 1000, RequestVolumeThreshold: 20,
		SleepWindow: 3600000, ErrorPercentThreshold: 50,
	})
	return name
}

func callHystrix(ctx context.Context, name string, fn func(context.Context) error) error {
	return hystrix.DoC(ctx, name, fn, func(context.Context, error) error { return nil })
}

// openHystrix opens the circuit.
func openHystrix(name string) error {
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		for range 50 {
			_ = hystrix.DoC(context.Background(), name, func(context.Context) error { return errDependency }, nil)
		}
		if c, _, err := hystrix.GetCircuit(name); err == nil && c.IsOpen() {
			return nil
		}
	}
	return errors.New("hystrix did not open")
}
