package bench

import (
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// BreakerCases are the cases of package breaker: a call that succeeds, through a closed
// breaker and nothing else. gobreaker counts since the window began, the others over one
// that slides.
func BreakerCases() ([]Case, error) {
	ours, err := breaker.New("dependency", breaker.Config{FailureRatio: 0.5, Window: 10 * time.Second, MinCalls: 20, OpenFor: time.Hour})
	if err != nil {
		return nil, err
	}
	gb := newHandStack().breaker
	fs := circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(time.Hour).Build()
	subjects := func(run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) {
				permit, err := ours.Acquire()
				if err != nil {
					return
				}
				_, _ = work(n)
				permit.Done(policy.Success)
			}),
			subject("gobreaker", func(n *int) { _, _ = gb.Execute(func() (int, error) { return work(n) }) }),
			subject("failsafe", func(n *int) {
				if fs.TryAcquirePermit() {
					_, _ = work(n)
					fs.RecordSuccess()
				}
			}),
		}
	}
	return []Case{{"breaker", subjects(one)}, {"breaker_parallel", subjects(many)}}, nil
}
