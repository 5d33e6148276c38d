package live

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/examples/incidents"
	"github.com/breakwater-go/breakwater/examples/incidents/aggregator"
	"github.com/breakwater-go/breakwater/examples/incidents/ask"
	"github.com/breakwater-go/breakwater/examples/incidents/ocr"
	"github.com/breakwater-go/breakwater/examples/incidents/orders"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/amqpdefer"
	"github.com/breakwater-go/breakwater/internal/pgserver"
	"github.com/breakwater-go/breakwater/internal/rabbitserver"
	"github.com/breakwater-go/breakwater/internal/redisserver"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
)

var (
	// ErrNoLive reports an incident without a live run.
	ErrNoLive = errors.New("live: there is no live run of it")

	// ErrNothing reports that nothing of an incident could be played.
	ErrNothing = errors.New("live: nothing of it can be played without the servers that it needs")
)

// Play plays an incident on real time, with the servers that it needs: those are started for it,
// and those that are not installed are told of by missing, and what needs them left out.
//
// It returns the error of ctx as soon as that ends, without its servers. What the incident is
// at by then goes on for some seconds and leads to nothing, so the program had better end.
func Play(ctx context.Context, name string, stage *Stage, missing func(error)) (*incidents.Result, error) {
	b := &backends{live: &incidents.Live{Registry: &stage.Registry}}
	defer b.close()
	b.missing = func(err error) {
		if ctx.Err() == nil { // otherwise it is what ended the start
			missing(err)
		}
	}
	var play func(context.Context, *incidents.Live) (*incidents.Result, error)
	switch name {
	case "ask":
		b.redis()
		play = ask.Live
	case "orders":
		b.redis()
		play = orders.Live
	case "aggregator":
		b.postgres(ctx)
		b.rabbit(ctx)
		play = aggregator.Live
	case "ocr":
		play = ocr.Live
	default:
		return nil, fmt.Errorf("%w: %s", ErrNoLive, name)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	type end struct {
		result *incidents.Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := play(ctx, b.live)
		ended <- end{r, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case e := <-ended:
		if e.err == nil && len(e.result.Rows) == 0 {
			return nil, ErrNothing
		}
		return e.result, e.err
	}
}

// backends are real servers on loopback.
type backends struct {
	live    *incidents.Live
	missing func(error)

	mu      sync.Mutex
	closed  bool
	closers []func()
}

func (b *backends) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, fn := range slices.Backward(b.closers) {
		fn()
	}
}

// atEnd has fn called at the end, which is now when that has been.
func (b *backends) atEnd(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		fn()
		return
	}
	b.closers = append(b.closers, fn)
}

func (b *backends) redis() {
	s, err := redisserver.Open()
	if err != nil {
		b.missing(err)
		return
	}
	b.atEnd(s.Close)
	client := redislimit.NewClient(&redis.UniversalOptions{Addrs: []string{s.Addr}})
	b.atEnd(func() { _ = client.Close() })
	b.live.Redis = client
}

func (b *backends) postgres(ctx context.Context) {
	s, err := pgserver.Start(ctx, pgserver.Config{})
	if err != nil {
		b.missing(err)
		return
	}
	b.atEnd(func() { _ = s.Stop() })
	b.live.Database = func(connections int) (*sql.DB, error) {
		db, err := sql.Open("pgx", s.DSN())
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		b.atEnd(func() { _ = db.Close() })
		return db, nil
	}
}

func (b *backends) rabbit(ctx context.Context) {
	s, err := rabbitserver.Start(ctx)
	if err != nil {
		b.missing(err)
		return
	}
	b.atEnd(s.Stop)
	broker := amqpdefer.Broker{URL: s.URL(), MaxAttempts: 3, Delays: []time.Duration{time.Second}}
	b.live.Defer = func(h fallback.Handler) (fallback.Queue, func() int, error) {
		queue, err := amqpdefer.NewQueue(amqpdefer.QueueConfig{Broker: broker})
		if err != nil {
			return nil, nil, err
		}
		b.atEnd(func() { _ = queue.Close(context.WithoutCancel(ctx)) })
		worker, err := amqpdefer.NewWorker(amqpdefer.WorkerConfig{Broker: broker, Handlers: map[string]fallback.Handler{"write": h}})
		if err != nil {
			return nil, nil, err
		}
		work, stop := context.WithCancel(ctx)
		var working sync.WaitGroup
		working.Go(func() { worker.Run(work) })
		b.atEnd(func() { stop(); working.Wait() })
		return queue, func() int { return int(worker.Snapshot().Dead) }, nil
	}
}
