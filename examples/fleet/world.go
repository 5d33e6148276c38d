package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/internal/draw"
	"github.com/breakwater-go/breakwater/internal/vtime"
	"github.com/breakwater-go/breakwater/policy"
)

// grid keeps calls from meeting: everything that two calls could see of each other happens
// in a nanosecond of its own within each grid of them, which is by its number. Two
// goroutines that wake at one instant run in random order, and no run would repeat.
const (
	grid  = 1 << 15
	slots = grid / 2 // of calls; the other half is for the store of a shared limit
)

// world is a fleet of clients of one dependency, on virtual time.
type world struct {
	fleet
	started time.Time
	dep     *dependency
	nodes   []*policy.Pipeline
	calls   sync.WaitGroup

	// mu is never waited for, since no two calls meet. It is there for the race detector,
	// which does not know that one instant is before another.
	mu      sync.Mutex
	seconds []second
}

// fleet is what a world consists of.
type fleet struct {
	clients  int           // each makes one call per second
	length   time.Duration // of the run
	seed     uint64
	capacity func(at time.Duration) float64 // calls per second that the dependency serves; 0 is down

	// policies are those of a node: a process, with a pipeline of its own. There are as many
	// nodes as clients, unless nodes says otherwise; then on says where a client is.
	policies makePolicies
	nodes    int
	on       func(client int) (node int)
}

// makePolicies makes the policies of a node.
type makePolicies func(w *world, node int) ([]policy.Policy, error)

// second counts what happened in one second.
type second struct {
	calls    int           // made by users
	attempts int           // that reached the dependency
	good     int           // calls answered
	failed   int           // calls that failed, or were refused
	wasted   int           // answers of the dependency for which nobody waited any more
	opened   int           // breakers
	trips    int           // to the store of a shared limit
	waited   time.Duration // of attempts for being let in, added up
}

// patience is how long a client waits for an answer.
const patience = 500 * time.Millisecond

// run plays a fleet. It must be the only thing that draws random numbers meanwhile.
func (f fleet) run() (*world, error) {
	defer draw.Seed(f.seed)()
	w := &world{fleet: f, seconds: make([]second, int(f.length/time.Second)+10)}
	var failed error
	err := vtime.Run(func() { failed = w.play() })
	return w, errors.Join(err, failed)
}

// play runs in the bubble.
func (w *world) play() error {
	w.started = time.Now()
	w.dep = &dependency{world: w}
	w.nodes = make([]*policy.Pipeline, cmp.Or(w.fleet.nodes, w.clients))
	for i := range w.nodes {
		list, err := w.policies(w, i)
		if err != nil {
			return err
		}
		if w.nodes[i], err = policy.New("dependency", list...); err != nil {
			return err
		}
	}
	w.offer()
	w.calls.Wait()
	var errs []error
	for _, p := range w.nodes {
		errs = append(errs, p.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// offer makes the calls: one of each client in each second, in an order and at times that
// are left to chance.
func (w *world) offer() {
	rnd := rand.New(rand.NewPCG(w.seed, 1))
	gap := time.Second / time.Duration(w.clients)
	total := int(w.length / gap)
	var order []int
	for n := range total {
		if n%w.clients == 0 {
			order = rnd.Perm(w.clients)
		}
		slot := time.Duration(n % slots)
		w.sleepUntil(gap*time.Duration(n)+time.Duration(rnd.Int64N(int64(gap)-grid)), slot)
		node := order[n%w.clients]
		if w.on != nil {
			node = w.on(node)
		}
		c := &call{world: w, node: w.nodes[node], slot: slot, from: w.now()}
		w.count(c.from, func(s *second) { s.calls++ })
		w.calls.Go(c.make)
	}
}

func (w *world) now() time.Duration { return time.Since(w.started) }

// at returns the second of a time. The last one stands for all that follows.
func (w *world) at(t time.Duration) *second {
	return &w.seconds[min(int(t/time.Second), len(w.seconds)-1)]
}

// count changes what is counted in the second of a time.
func (w *world) count(t time.Duration, change func(*second)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.at(t))
}

// sleepUntil sleeps until the first nanosecond of a slot that is not before t.
func (w *world) sleepUntil(t, slot time.Duration) {
	if d := align(t, slot) - w.now(); d > 0 {
		time.Sleep(d)
	}
}

func align(t, slot time.Duration) time.Duration {
	return (t-slot+grid-1)/grid*grid + slot
}

// call is one call of a user.
type call struct {
	*world

	node *policy.Pipeline
	slot time.Duration
	from time.Duration // when it was made
}

// make makes the call through the pipeline of its node.
func (c *call) make() {
	_, err := policy.DoWith(context.Background(), c.node, c, attempt)
	c.count(c.now(), func(s *second) {
		if err == nil {
			s.good++
		} else {
			s.failed++
		}
	})
}

// attempt is what a pipeline runs.
func attempt(ctx context.Context, c *call) (struct{}, error) {
	c.sleepUntil(c.now(), c.slot) // a backoff may have ended anywhere
	now := c.now()
	c.count(now, func(s *second) { s.attempts, s.waited = s.attempts+1, s.waited+now-c.from })
	answered, err := c.dep.serve(now)
	if err != nil {
		return struct{}{}, err
	}
	answered = align(answered, c.slot)
	until := now + patience
	if deadline, ok := ctx.Deadline(); ok {
		until = min(until, deadline.Sub(c.started))
	}
	if answered > until {
		c.count(answered, func(s *second) { s.wasted++ })
		c.sleepUntil(until, c.slot)
		return struct{}{}, context.DeadlineExceeded
	}
	c.sleepUntil(answered, c.slot)
	return struct{}{}, nil
}
