package bulkhead_test

import (
	"context"
	"testing"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func benchPool(b *testing.B, cfg bulkhead.Pool) *policy.Pipeline {
	b.Helper()
	p, err := policy.New("dependency", cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return p
}

func one(context.Context, int) (int, error) { return 1, nil }

// idleTask is the least a task can be.
type idleTask struct{ ctx context.Context } //nolint:containedctx // what Begin returns

func (t *idleTask) Look() error            { return nil }
func (t *idleTask) Begin() context.Context { return t.ctx }
func (t *idleTask) Run()                   {}
func (t *idleTask) Late()                  {}

// What it costs to have something done elsewhere: by an idle worker of a pool, alone
// and as part of a pipeline; by a goroutine of its own; by a goroutine that is there
// already, with nothing around it.
func BenchmarkHandOff(b *testing.B) {
	ctx := b.Context()
	b.Run("run", func(b *testing.B) {
		w, err := bulkhead.NewPool("", bulkhead.Pool{Workers: 10})
		if err != nil {
			b.Fatal(err)
		}
		p, err := policy.New("dependency")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = policy.DoAttempt(ctx, p, nil, 0, func(ctx context.Context, _ int, a *policy.Attempt) (int, error) {
			task := &idleTask{ctx: ctx}
			b.ReportAllocs()
			for b.Loop() {
				w.Run(ctx, a, task)
			}
			return 0, nil
		}, nil)
		if err := w.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Run("pipeline", func(b *testing.B) {
		p := benchPool(b, bulkhead.Pool{Workers: 10}) //nolint:contextcheck // see there
		b.ReportAllocs()
		for b.Loop() {
			if _, err := policy.DoWith(ctx, p, 1, one); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("goroutine", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			done := make(chan int, 1)
			go func() {
				v, _ := one(ctx, 1)
				done <- v
			}()
			select {
			case <-done:
			case <-ctx.Done():
			}
		}
	})
	b.Run("channel", func(b *testing.B) {
		work, done := make(chan int), make(chan int, 1)
		go func() {
			for range work {
				v, _ := one(ctx, 1)
				done <- v
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			work <- 1
			select {
			case <-done:
			case <-ctx.Done():
			}
		}
		close(work)
	})
}

func BenchmarkHandOffParallel(b *testing.B) {
	p := benchPool(b, bulkhead.Pool{Workers: 64, Queue: 1000})
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := policy.DoWith(ctx, p, 1, one); err != nil {
				b.Error(err)
			}
		}
	})
}

// Two workers and 16 callers for each processor: most calls stand in the queue.
func BenchmarkQueued(b *testing.B) {
	p := benchPool(b, bulkhead.Pool{Workers: 2, Queue: 1000})
	ctx := b.Context()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := policy.DoWith(ctx, p, 1, one); err != nil {
				b.Error(err)
			}
		}
	})
}

// Every worker is busy and the queue is full.
func BenchmarkPoolFull(b *testing.B) {
	p := benchPool(b, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue})
	ctx := b.Context()
	stuck, began := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = policy.Do(ctx, p, func(context.Context) (int, error) { close(began); <-stuck; return 0, nil })
	}()
	<-began
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.DoWith(ctx, p, 1, one); err == nil {
			b.Fatal("admitted")
		}
	}
	b.StopTimer()
	close(stuck)
}
