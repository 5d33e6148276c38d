package bench

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sync/semaphore"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// poolSize is the number of workers of every pool, and of permits of every semaphore.
const poolSize = 64

// PoolCases are the cases of package bulkhead: a permit taken and given back, alone
// and contended, and a function handed to another goroutine and waited for.
func PoolCases() ([]Case, error) {
	sem, err := semaphoreCases()
	if err != nil {
		return nil, err
	}
	pools, err := handOffCases()
	return append(sem, pools...), err
}

// crowd makes a benchmark of a call on 64 goroutines at once.
func crowd(call func(n *int)) func(b *testing.B) {
	return func(b *testing.B) { //nolint:thelper // the benchmark itself
		b.SetParallelism(max(64/runtime.GOMAXPROCS(0), 1))
		many(call)(b)
	}
}

func semaphoreCases() ([]Case, error) {
	ctx := context.Background()
	ours, err1 := bulkhead.New("dependency", bulkhead.Semaphore{Limit: poolSize, MaxWait: time.Minute, MaxWaiters: 1000})
	adaptive, err2 := policy.New("dependency", bulkhead.Adaptive{Min: poolSize, Initial: poolSize, Max: poolSize})
	fixed, err3 := policy.New("dependency", bulkhead.Semaphore{Limit: poolSize})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	sync := semaphore.NewWeighted(poolSize)
	fs := fsbulkhead.New[int](poolSize)
	fsAdaptive := adaptivelimiter.NewBuilder[int]().WithLimits(poolSize, poolSize, poolSize).Build()

	try := func(run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) {
				if ours.TryAcquire() {
					*n++
					ours.Release()
				}
			}),
			subject("x/sync", func(n *int) {
				if sync.TryAcquire(1) {
					*n++
					sync.Release(1)
				}
			}),
			subject("failsafe", func(n *int) {
				if fs.TryAcquirePermit() {
					*n++
					fs.ReleasePermit()
				}
			}),
		}
	}
	wait := func(run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) {
				if ours.Acquire(ctx) == nil {
					*n++
					ours.Release()
				}
			}),
			subject("x/sync", func(n *int) {
				if sync.Acquire(ctx, 1) == nil {
					*n++
					sync.Release(1)
				}
			}),
			subject("failsafe", func(n *int) {
				if fs.AcquirePermit(ctx) == nil {
					*n++
					fs.ReleasePermit()
				}
			}),
		}
	}
	gate := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: one(call), call: call} }
	return []Case{
		{"permit_try", try(one)},
		{"permit_acquire", wait(one)},
		{"permit_try_64", try(crowd)},
		{"permit_acquire_64", wait(crowd)},
		{"adaptive", []Subject{
			gate("breakwater", func(n *int) { _, _ = policy.DoWith(ctx, adaptive, n, add) }),
			gate("breakwater fixed", func(n *int) { _, _ = policy.DoWith(ctx, fixed, n, add) }),
			gate("failsafe permit alone", func(n *int) {
				if p, ok := fsAdaptive.TryAcquirePermit(); ok {
					_, _ = work(n)
					p.Record()
				}
			}),
		}},
	}, nil
}

// task is the least a Runner can be given.
type task struct {
	ctx context.Context //nolint:containedctx // what Begin returns
	n   *int
}

func (t *task) Look() error            { return nil }
func (t *task) Begin() context.Context { return t.ctx }
func (t *task) Run()                   { _, _ = work(t.n) }
func (t *task) Late()                  {}

// handOffCases have a function run by somebody else and wait for it: until it is done
// or the context ends, where the library knows of contexts.
func handOffCases() ([]Case, error) {
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel // as long as the process: every caller's context can be cancelled
	cfg := bulkhead.Pool{Workers: poolSize, MinWorkers: poolSize, Queue: 1000}
	p, err1 := policy.New("dependency", cfg)
	workers, err2 := bulkhead.NewPool("dependency", cfg)
	bare, err3 := policy.New("dependency")
	an, err4 := ants.NewPool(poolSize, ants.WithDisablePurge(true))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	cp := pool.New().WithMaxGoroutines(poolSize)

	// finish waits for a function that tells done.
	finish := func(done <-chan struct{}) {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	subjects := func(run func(func(*int)) func(*testing.B)) []Subject {
		subject := func(name string, call func(*int)) Subject { return Subject{Name: name, Run: run(call), call: call} }
		return []Subject{
			subject("breakwater", func(n *int) { _, _ = policy.DoWith(ctx, p, n, add) }),
			subject("goroutine", func(n *int) {
				done := make(chan struct{}, 1)
				go func() { _, _ = work(n); done <- struct{}{} }()
				finish(done)
			}),
			subject("ants", func(n *int) {
				done := make(chan struct{}, 1)
				if an.Submit(func() { _, _ = work(n); done <- struct{}{} }) == nil {
					finish(done)
				}
			}),
			subject("conc", func(n *int) {
				done := make(chan struct{}, 1)
				cp.Go(func() { _, _ = work(n); done <- struct{}{} })
				finish(done)
			}),
		}
	}
	// The pool without the pipeline: an attempt is borrowed for as long as it takes.
	alone := Subject{Name: "breakwater, pool alone"}
	alone.call = func(n *int) {
		_, _ = policy.DoAttempt(ctx, bare, nil, n, func(ctx context.Context, n *int, a *policy.Attempt) (int, error) {
			workers.Run(ctx, a, &task{ctx: ctx, n: n})
			return *n, nil
		}, nil)
	}
	alone.Run = func(b *testing.B) { //nolint:thelper // the benchmark itself
		b.ReportAllocs()
		n := 0
		_, _ = policy.DoAttempt(ctx, bare, nil, &n, func(ctx context.Context, n *int, a *policy.Attempt) (int, error) {
			t := &task{ctx: ctx, n: n}
			for b.Loop() {
				workers.Run(ctx, a, t)
			}
			return 0, nil
		}, nil)
	}
	return []Case{
		{"handoff", append(subjects(one), alone)},
		{"handoff_64", subjects(crowd)},
	}, nil
}
