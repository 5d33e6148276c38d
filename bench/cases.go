package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/failsafe-go/failsafe-go"
	gozero "github.com/zeromicro/go-zero/core/breaker"

	"github.com/breakwater-go/breakwater/policy"
)

// A Case is one situation, measured for us and for each peer.
type Case struct {
	Name     string
	Subjects []Subject // ours is the first
}

// A Subject is one library in one situation.
type Subject struct {
	Name string // "breakwater", or the peer's
	Run  func(b *testing.B)
	call func(n *int)
}

// Ran makes 100 calls and returns how many of them ran their function.
func (s Subject) Ran() int {
	n := 0
	for range 100 {
		s.call(&n)
	}
	return n
}

// one makes a benchmark of a call, which is given a counter of its own.
func one(call func(n *int)) func(b *testing.B) {
	return func(b *testing.B) { //nolint:thelper // the benchmark itself
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			call(&n)
		}
	}
}

// many makes a benchmark of a call on all processors at once.
func many(call func(n *int)) func(b *testing.B) {
	return func(b *testing.B) { //nolint:thelper // the benchmark itself
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			n := 0
			for pb.Next() {
				call(&n)
			}
		})
	}
}

// AllCases are the cases of whole pipelines and those of single policies.
func AllCases() ([]Case, error) {
	var all []Case
	var errs []error
	for _, cases := range []func() ([]Case, error){Cases, RecoveryCases, LimitCases, BreakerCases, PoolCases} {
		c, err := cases()
		all, errs = append(all, c...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Cases builds every case of a whole pipeline. Every library is given the same work, a closure that
// captures n where it takes closures, and the caller's context where it takes one.
func Cases() ([]Case, error) {
	ctx := context.Background()
	p, err1 := newPipeline()
	open, err2 := newOpenPipeline()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	stack, fs, gz, hx := newHandStack(), newFailsafe(), newGoZero(), newHystrix("closed")

	doWith := func(p *policy.Pipeline) func(*int) {
		return func(n *int) { _, _ = policy.DoWith(ctx, p, n, add) }
	}
	subject := func(name string, run func(func(*int)) func(*testing.B), call func(*int)) Subject {
		return Subject{Name: name, Run: run(call), call: call}
	}
	peers := func(run func(func(*int)) func(*testing.B), stack *handStack, fs failsafe.Executor[int], gz gozero.Breaker, hx string) []Subject {
		return []Subject{
			subject("handstack", run, func(n *int) { _, _ = stack.call(func() (int, error) { return work(n) }) }),
			subject("failsafe", run, func(n *int) {
				_, _ = callFailsafe(ctx, fs, func(context.Context) (int, error) { return work(n) })
			}),
			subject("gozero", run, func(n *int) { _ = gz.DoCtx(ctx, func() error { _, err := work(n); return err }) }),
			subject("hystrix", run, func(n *int) {
				_ = callHystrix(ctx, hx, func(context.Context) error { _, err := work(n); return err })
			}),
		}
	}

	openStack, openFS, openGZ, openHX := newHandStack(), newFailsafe(), newGoZero(), newHystrix("open")
	for range 100 {
		_, _ = openStack.call(func() (int, error) { return 0, errDependency })
		_, _ = openFS.Get(func() (int, error) { return 0, errDependency })
	}
	openGoZero(openGZ)
	if err := openHystrix(openHX); err != nil {
		return nil, err
	}
	refused := peers(one, openStack, openFS, openGZ, openHX)
	// go-zero drops a share of the calls, and fewer as time passes: it is made to
	// fail again before each measurement.
	drop := refused[2].Run
	refused[2].Run = func(b *testing.B) { //nolint:thelper // the benchmark itself
		openGoZero(openGZ)
		drop(b)
	}
	enter := func(n *int) {
		h, err := p.Enter(ctx)
		if err != nil {
			return
		}
		_, err = work(n)
		h.Leave(err)
	}
	do := func(n *int) { _, _ = policy.Do(ctx, p, func(context.Context) (int, error) { return work(n) }) }
	with := func(name string, run func(func(*int)) func(*testing.B), ours func(*int), peers []Subject) Case {
		return Case{name, append([]Subject{subject("breakwater", run, ours)}, peers...)}
	}
	return []Case{
		with("success", one, doWith(p), peers(one, stack, fs, gz, hx)),
		with("success_do", one, do, peers(one, stack, fs, gz, hx)),
		with("success_enter", one, enter, peers(one, stack, fs, gz, hx)),
		with("parallel", many, doWith(p), peers(many, stack, fs, gz, hx)),
		with("refused", one, doWith(open), refused),
	}, nil
}
