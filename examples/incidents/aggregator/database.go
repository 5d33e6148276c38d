package aggregator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

// connections: 2,600 queries a second come to 100 connections, which do 2,000.
func connections(w *replay.World, r *replay.Result) {
	was, now := newDatabase(query), newDatabase(query)
	load := func(ask func(context.Context) error) *replay.Log {
		log := replay.NewLog()
		replay.Traffic{Every: replay.PerSecond(2600), From: 100 * time.Microsecond, Length: 2 * time.Second}.Offer(func(int) {
			arrived := time.Now()
			record(log, arrived, ask(context.Background()))
		})
		return log
	}
	p := w.Pipelines(afterYAML, replay.Setup{})["database"]
	var oldLog, newLog *replay.Log
	replay.Together(
		func() { oldLog = load(was.query) },
		func() {
			newLog = load(func(ctx context.Context) error { return policy.Run(ctx, p, now.query) })
		},
	)
	pool := replay.Find(p, "pool").Bulkhead
	r.Row("2,600 queries/s at 100 connections: longest wait for one", replay.AtLeast(was.longest.Quantile(1), 500*time.Millisecond), replay.Is(now.longest.Quantile(1), 0))
	r.Row("  longest wait in the pool, which bounds it", replay.None, replay.AtMost(newLog.Quantile(1, replay.Served)-query(), 100*time.Millisecond))
	r.Row("  waits that the pool's metric shows", replay.None, replay.AtLeast(int(pool.Wait.Count()), 1000))
	r.Row("  queries that are answered, of those that can be, %", replay.Seen(share(oldLog)), replay.AtLeast(share(newLog), 85))

	// Without the pool, a query waits 500 ms for its connection. To whoever calls, it is slow.
	alone := w.Pipelines(afterYAML, replay.Setup{Settings: []string{"database.pool.Workers=10000"}})["database"]
	opening := replay.WatchOpening(alone)
	crowded := newDatabase(query)
	replay.Traffic{Every: replay.PerSecond(4000), From: 100 * time.Microsecond, Length: 2 * time.Second}.Offer(func(int) {
		_ = policy.Run(context.Background(), alone, crowded.query) // what counts is what the breaker makes of it
	})
	_, why, _ := opening.First()
	r.Row("  waits of 500 ms without a pool: the breaker opens by", replay.None, replay.Says(why, breaker.WhySlowRatio))
}

// share is the part of what 100 connections can do in 2 s.
func share(l *replay.Log) float64 {
	return 100 * float64(l.From(0, 2*time.Second).Total(replay.Served)) / 4000
}

// stampede: 500 requests a second for one key, which expires. A query takes 400 ms.
func stampede(w *replay.World, r *replay.Result) {
	slow := func() time.Duration { return 400 * time.Millisecond }
	was := &before{db: newDatabase(slow), cache: map[string]time.Time{}}
	now := as(w, newDatabase(slow))
	load := func(p platform) *replay.Log {
		log := replay.NewLog()
		replay.Traffic{Every: replay.PerSecond(500), From: 100 * time.Microsecond, Length: 15 * time.Second}.Offer(func(int) {
			arrived := time.Now()
			record(log, arrived, p.cached(context.Background(), "hot"))
		})
		return log
	}
	var oldLog, newLog *replay.Log
	replay.Together(func() { oldLog = load(was) }, func() { newLog = load(now) })
	late := func(l *replay.Log) *replay.Log { return l.Arrived(5*time.Second, 15*time.Second) }
	r.Row("hot key, 500/s, expires: queries", replay.AtLeast(was.db.queries.From(5*time.Second, time.Minute).Total(), 100), replay.Is(now.db.queries.From(5*time.Second, time.Minute).Total(), 1))
	r.Row("  longest that a request takes", replay.AtLeast(late(oldLog).Quantile(1), 400*time.Millisecond), replay.Is(late(newLog).Quantile(1), 0))
	r.Row("  requests that fail", replay.None, replay.Is(newLog.Total(replay.Failed, replay.Refused), 0))

	// 200 keys that are loaded at one time. By how much they lie apart later is left to chance.
	db := newDatabase(func() time.Duration { return time.Millisecond })
	keys, err := stale.New(w.Pipeline("keys"), stale.Config[string]{Fresh: 10 * time.Second, MaxAge: time.Minute})
	w.Must(err)
	w.AtEnd(func() { w.Must(keys.Close(context.Background())) })
	start := time.Now()
	for time.Since(start) < 12*time.Second {
		for i := range 200 {
			_, err := keys.Get(context.Background(), strconv.Itoa(i), func(ctx context.Context) (string, error) { return "", db.query(ctx) })
			w.Must(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	again := db.queries.From(5*time.Second, 15*time.Second)
	first, _ := again.First()
	apart := "no"
	if again.Last()-first > 500*time.Millisecond {
		apart = "yes"
	}
	r.Row("200 keys loaded together: expire apart", replay.None, replay.Says(apart, "yes"))
}

// memory is a queue that is durable as long as the replay lasts. Those for production are
// asynqdefer, on Redis, and amqpdefer, on RabbitMQ.
type memory struct {
	mu    sync.Mutex
	tasks []fallback.Task
	dead  int
}

// Enqueue implements [fallback.Queue].
func (m *memory) Enqueue(_ context.Context, t fallback.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = append(m.tasks, t)
	return nil
}

// work gives each task up to three tries.
func (m *memory) work(ctx context.Context, h fallback.Handler) {
	for _, t := range m.tasks {
		for attempt := 1; ; attempt++ {
			if h(ctx, fallback.Delivery{Task: t, Attempt: attempt, Last: attempt == 3}) == nil {
				break
			}
			if attempt == 3 {
				m.dead++
				break
			}
			time.Sleep(time.Second)
		}
	}
}

// later: writes that may happen later, while what they write to is away for 3 s. One of
// them can never be done.
func later(w *replay.World, r *replay.Result) {
	start, store := time.Now(), map[string]int{}
	var mu sync.Mutex
	write := func(_ context.Context, key string) error {
		if at := time.Since(start); at > time.Second && at < 4*time.Second || key == "write 250" {
			return errors.New("away")
		}
		mu.Lock()
		defer mu.Unlock()
		store[key]++
		return nil
	}
	queue := new(memory)
	// The pipeline of the database without its breaker's part: each write is tried.
	p := policy.For(w.Pipelines(afterYAML, replay.Setup{})["database"], fallback.Defer[string]{Queue: queue})
	lostBefore, lost := 0, 0
	replay.Traffic{Every: replay.PerSecond(100), From: 100 * time.Microsecond, Length: 5 * time.Second}.Offer(func(i int) {
		key := fmt.Sprint("write ", i)
		if at := time.Since(start); at > time.Second && at < 4*time.Second {
			mu.Lock()
			lostBefore++
			mu.Unlock()
		}
		ctx := fallback.WithTask(context.Background(), fallback.Task{Kind: "write", Key: key, Payload: []byte(key)})
		if _, err := p.Do(ctx, func(ctx context.Context) (string, error) { return "", write(ctx, key) }); err != nil {
			mu.Lock()
			lost++
			mu.Unlock()
		}
	})
	queue.work(context.Background(), func(ctx context.Context, d fallback.Delivery) error { return write(ctx, d.Key) })
	twice := 0
	for _, n := range store {
		twice += n - 1
	}
	r.Row("500 writes, their store away for 3 s: lost", replay.Is(lostBefore, 300), replay.Is(lost, 0))
	r.Row("  written in the end", replay.None, replay.Is(len(store), 499))
	r.Row("  in the dead letters, after three tries", replay.None, replay.Is(queue.dead, 1))
	r.Row("  written twice", replay.None, replay.Is(twice, 0))
}
