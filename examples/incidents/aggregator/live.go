package aggregator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// Live plays what needs a database, and a queue, on real time with those.
func Live(ctx context.Context, live *replay.Live) (*replay.Result, error) {
	r := &replay.Result{Incident: "aggregator"}
	var scenes []func(w *replay.World)
	if live.Database != nil {
		scenes = append(scenes, func(w *replay.World) { liveConnections(w, r) })
	}
	if live.Defer != nil {
		scenes = append(scenes, func(w *replay.World) { liveLater(w, r) })
	}
	err := replay.RunLive(ctx, live, scenes...)
	r.Loosen()
	return r, err
}

// liveConnections: 260 queries a second come to 10 connections, which do 200.
func liveConnections(w *replay.World, r *replay.Result) {
	const connections, rate, length = 10, 260, 5 * time.Second
	was, now := realDatabase(w, connections), realDatabase(w, connections)
	p := w.Pipelines(afterYAML, replay.Setup{Settings: []string{"database.pool.Workers=9", "database.pool.Queue=18"}})["database"]
	load := func(ask func(context.Context) error) *replay.Log {
		log := replay.NewLog()
		replay.Traffic{Every: replay.PerSecond(rate), Length: length}.Offer(func(int) {
			arrived := time.Now()
			record(log, arrived, ask(context.Background()))
		})
		return log
	}
	var newLog *replay.Log
	replay.Together(
		func() { load(was.query) },
		func() {
			newLog = load(func(ctx context.Context) error { return policy.Run(ctx, p, now.query) })
		},
	)
	pool := replay.Find(p, "pool").Bulkhead
	r.Row("260 queries/s at 10 connections of PostgreSQL: longest wait for one", replay.AtLeast(was.longest.Quantile(1), 500*time.Millisecond), replay.AtMost(now.longest.Quantile(0.99), 0))
	r.Row("  longest wait in the pool, which bounds it", replay.None, replay.AtMost(newLog.Quantile(0.99, replay.Served)-query(), 100*time.Millisecond))
	r.Row("  waits that the pool's metric shows", replay.None, replay.AtLeast(int(pool.Wait.Count()), 100))
	served := newLog.From(0, length).Total(replay.Served)
	r.Row("  queries that are answered, of those that can be, %", replay.None, replay.AtLeast(100*float64(served)/(200*length.Seconds()), 80))
}

// liveLater: writes that may happen later go to a durable queue, while what they write to is
// away for 2 s. One of them can never be done.
func liveLater(w *replay.World, r *replay.Result) {
	start, store := time.Now(), map[string]int{}
	var mu sync.Mutex
	away := func() bool { at := time.Since(start); return at > time.Second && at < 3*time.Second }
	write := func(key string) error {
		if away() || key == "write 150" {
			return errors.New("away")
		}
		mu.Lock()
		defer mu.Unlock()
		store[key]++
		return nil
	}
	queue, dead := w.Defer(func(_ context.Context, d fallback.Delivery) error { return write(d.Key) })
	p := policy.For(w.Pipelines(afterYAML, replay.Setup{})["database"], fallback.Defer[string]{Queue: queue})
	lostBefore, lost := replay.NewGauge(), replay.NewGauge()
	replay.Traffic{Every: replay.PerSecond(100), Length: 4 * time.Second}.Offer(func(i int) {
		key := fmt.Sprint("write ", i)
		if away() {
			lostBefore.Add(1)
		}
		ctx := fallback.WithTask(context.Background(), fallback.Task{Kind: "write", Key: key, Payload: []byte(key)})
		if _, err := p.Do(ctx, func(context.Context) (string, error) { return "", write(key) }); err != nil {
			lost.Add(1)
		}
	})
	written := func() (n, twice int) {
		mu.Lock()
		defer mu.Unlock()
		for _, times := range store {
			twice += times - 1
		}
		return len(store), twice
	}
	for range 600 { // the workers have what they need of time
		if n, _ := written(); n >= 399 && dead() >= 1 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	n, twice := written()
	r.Row("400 writes, their store away for 2 s: lost", replay.Near(lostBefore.Peak(), 200, 10), replay.Exactly(lost.Peak(), 0))
	r.Row("  written in the end", replay.None, replay.Exactly(n, 399))
	r.Row("  in the dead letters of RabbitMQ, after three tries", replay.None, replay.Exactly(dead(), 1))
	r.Row("  written twice", replay.None, replay.Exactly(twice, 0))
}
