package aggregator

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
)

// database answers a query within a time, on one of its connections. Who finds none waits
// in line for one.
type database struct {
	connections chan struct{}
	took        func() time.Duration
	queries     *replay.Log // that had a connection
	longest     *replay.Log // waits for one
	real        *sql.DB     // on real time; nil on virtual time
}

func newDatabase(took func() time.Duration) *database {
	return &database{connections: make(chan struct{}, 100), took: took, queries: replay.NewLog(), longest: replay.NewLog()}
}

// realDatabase is a database with so many connections, on real time.
func realDatabase(w *replay.World, connections int) *database {
	d := newDatabase(query)
	d.real = w.Database(connections)
	return d
}

func query() time.Duration { return 50 * time.Millisecond }

func (d *database) query(ctx context.Context) error {
	arrived := time.Now()
	if d.real != nil {
		return d.ask(ctx, arrived)
	}
	select {
	case d.connections <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.longest.Add(replay.Served, arrived)
	d.queries.Add(replay.Served, time.Now())
	err := replay.Sleep(ctx, d.took())
	if err != nil {
		time.Sleep(time.Microsecond) // the caller knows first
	}
	<-d.connections
	return err
}

// ask queries the real database.
func (d *database) ask(ctx context.Context, arrived time.Time) error {
	conn, err := d.real.Conn(ctx)
	if err != nil {
		return err
	}
	d.longest.Add(replay.Served, arrived)
	d.queries.Add(replay.Served, time.Now())
	_, err = conn.ExecContext(ctx, "SELECT pg_sleep($1)", d.took().Seconds())
	return errors.Join(err, conn.Close())
}

// platform is what requests come to, before or after.
type platform interface {
	aggregate(ctx context.Context, shop string) error
	cached(ctx context.Context, key string) error
}

// record writes down what became of a request.
func record(log *replay.Log, arrived time.Time, err error) {
	what := replay.Served
	if err != nil {
		what = replay.Failed
		if errors.Is(err, policy.ErrRejected) {
			what = replay.Refused
		}
	}
	log.Add(what, arrived)
}
