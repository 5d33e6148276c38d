package amqpdefer_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/amqpdefer"
	"github.com/breakwater-go/breakwater/policy"
)

var errDown = errors.New("down")

func newQueue(t *testing.T, b amqpdefer.Broker) *amqpdefer.Queue {
	t.Helper()
	q, err := amqpdefer.NewQueue(amqpdefer.QueueConfig{Broker: b})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Close(context.Background())) }) //nolint:usetesting // that of the test has ended
	return q
}

// runWorker runs a worker until the test ends, or the returned function is called.
func runWorker(t *testing.T, cfg amqpdefer.WorkerConfig) (*amqpdefer.Worker, func()) {
	t.Helper()
	w, err := amqpdefer.NewWorker(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return w, stop
}

// All tests share a broker, which takes seconds to start.
func TestRabbit(t *testing.T) {
	url, ctl := startRabbit(t)
	for name, test := range map[string]func(*testing.T, string){
		"defer and work": deferAndWork, "worker stops": workerStops, "killed mid-task": killedMidTask,
		"thousands survive a kill": thousands, "reconnects": reconnects, "unroutable": unroutable, "kills its workers": killsItsWorkers, "other topology": otherTopology,
	} {
		t.Run(name, func(t *testing.T) { test(t, url) })
	}
	t.Run("refused", func(t *testing.T) { refused(t, url, ctl) })
}

func deferAndWork(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue = "orders"
	q := newQueue(t, b)
	p, err := policy.New("orders", fallback.Defer[string]{
		Queue: q, Timeout: 10 * time.Second,
		Accepted: func(t fallback.Task) string { return t.Key + " accepted" },
	})
	require.NoError(t, err)
	for _, kind := range []string{"ok", "fails", "gone", "flaky", "refused", "panics", "unknown"} {
		ctx := fallback.WithTask(t.Context(), fallback.Task{Kind: kind, Key: "1", Payload: []byte("payload"), Header: map[string]string{"trace": "1"}})
		v, err := policy.Do(ctx, p, func(context.Context) (string, error) { return "", errDown })
		require.NoError(t, err, kind)
		assert.Equal(t, "1 accepted", v)
	}
	s := p.Snapshot().Policies[0].Fallback
	assert.EqualValues(t, 7, s.Served)
	assert.Equal(t, policy.DeferSnapshot{Accepted: 7, Connected: true}, *s.Defer)
	poll(t, "the broker has counted", func() bool {
		depth, err := q.Depth(t.Context())
		require.NoError(t, err)
		return depth == fallback.Depth{Ready: 7}
	})

	var mu sync.Mutex
	attempts := map[string][]int{}
	refusals := 0
	var failures []string
	note := func(d fallback.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		attempts[d.Kind] = append(attempts[d.Kind], d.Attempt)
	}
	w, stop := runWorker(t, amqpdefer.WorkerConfig{
		Broker: b,
		OnFailure: func(d fallback.Delivery, err error, dead bool) {
			mu.Lock()
			defer mu.Unlock()
			assert.Error(t, err)
			if dead {
				failures = append(failures, d.Kind)
			}
		},
		Handlers: map[string]fallback.Handler{
			"ok": func(_ context.Context, d fallback.Delivery) error {
				note(d)
				assert.Equal(t, fallback.Task{Kind: "ok", Key: "1", Payload: []byte("payload"), Header: map[string]string{"trace": "1"}}, d.Task)
				return nil
			},
			"fails": func(_ context.Context, d fallback.Delivery) error {
				note(d)
				assert.Equal(t, d.Attempt == 3, d.Last)
				return errDown
			},
			"gone": func(_ context.Context, d fallback.Delivery) error { note(d); return policy.AsPermanent(errDown) },
			"flaky": func(_ context.Context, d fallback.Delivery) error {
				note(d)
				if d.Attempt < 3 {
					return errDown
				}
				return nil
			},
			"refused": func(_ context.Context, d fallback.Delivery) error {
				note(d)
				mu.Lock()
				defer mu.Unlock()
				if refusals++; refusals <= 5 { // more than MaxAttempts
					return &policy.RejectedError{Reason: policy.ReasonOpen, RetryAfter: time.Millisecond}
				}
				return nil
			},
			"panics": func(_ context.Context, d fallback.Delivery) error { note(d); panic("handler") },
		},
	})
	poll(t, "all tasks have ended", func() bool {
		s := w.Snapshot()
		return s.Done == 3 && s.Dead == 4
	})
	stop()
	poll(t, "the dead letters are there", func() bool {
		depth, err := q.Depth(t.Context())
		require.NoError(t, err)
		return depth == fallback.Depth{Dead: 4}
	})
	assert.Equal(t, map[string][]int{
		"ok": {1}, "fails": {1, 2, 3}, "gone": {1}, "flaky": {1, 2, 3}, "refused": {1, 1, 1, 1, 1, 1}, "panics": {1, 2, 3},
	}, attempts)
	slices.Sort(failures)
	assert.Equal(t, []string{"fails", "gone", "panics", "unknown"}, failures)
	assert.Equal(t, fallback.WorkerSnapshot{Done: 3, Failed: 2 + 2 + 2 + 2, Postponed: 5, Dead: 4}, w.Snapshot())
}

// A worker that stops does what it has fetched, and puts back what takes longer.
func workerStops(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue = "stops"
	q := newQueue(t, b)
	started, release := make(chan struct{}, 100), make(chan struct{})
	w, stop := runWorker(t, amqpdefer.WorkerConfig{
		Broker: b, Consumers: 1, Shutdown: 30 * time.Second,
		Handlers: map[string]fallback.Handler{"a": func(context.Context, fallback.Delivery) error {
			started <- struct{}{}
			<-release
			return nil
		}},
	})
	for i := range 20 {
		require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: strconv.Itoa(i)}))
	}
	<-started
	poll(t, "all are fetched", func() bool {
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d.Ready == 0
	})
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	stop()
	assert.EqualValues(t, 20, w.Snapshot().Done)

	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "slow", Key: "1"}))
	begun := make(chan struct{}, 1)
	w, stop = runWorker(t, amqpdefer.WorkerConfig{
		Broker: b, Shutdown: 100 * time.Millisecond,
		Handlers: map[string]fallback.Handler{"slow": func(ctx context.Context, _ fallback.Delivery) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}},
	})
	<-begun
	stop()
	assert.Equal(t, fallback.WorkerSnapshot{Postponed: 1}, w.Snapshot())
	attempts := make(chan int, 1)
	runWorker(t, amqpdefer.WorkerConfig{
		Broker: b,
		Handlers: map[string]fallback.Handler{"slow": func(_ context.Context, d fallback.Delivery) error {
			attempts <- d.Attempt
			return nil
		}},
	})
	assert.Equal(t, 1, <-attempts, "it does not count")
}

// A worker that dies in the middle of a task leaves it to another.
func killedMidTask(t *testing.T, url string) {
	t.Helper()
	dir := t.TempDir()
	q := newQueue(t, settings(url))
	first := startWorker(t, url, dir)
	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "hang", Key: "hang"}))
	poll(t, "the handler has begun", func() bool {
		_, err := os.Stat(filepath.Join(dir, "hanging"))
		return err == nil
	})
	assert.Empty(t, done(t, dir))
	kill(t, first)
	startWorker(t, url, dir)
	poll(t, "another has done it", func() bool { return done(t, dir)["hang"] == 1 })
}

// 2,000 persistent tasks a second for two seconds and ten consumers, five of them killed
// midway: each task is done at least once, none is lost, and those that cannot be done are
// among the dead letters.
func thousands(t *testing.T, url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	dir := t.TempDir()
	const (
		tasks, poison = 4000, 20
		length        = 2 * time.Second
	)
	q := newQueue(t, settings(url))
	before, err := q.Depth(t.Context())
	require.NoError(t, err)
	first := startWorker(t, url, dir)
	startWorker(t, url, dir)

	start := time.Now()
	todo := make(chan int, tasks+poison)
	var wg sync.WaitGroup
	for range 200 { // each waits for the broker's confirmation
		wg.Go(func() {
			for i := range todo {
				kind := "work"
				if i >= tasks {
					kind = "poison"
				}
				assert.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: kind, Key: strconv.Itoa(i)}))
			}
		})
	}
	for i := range poison {
		todo <- tasks + i
	}
	for i := range tasks {
		time.Sleep(time.Until(start.Add(length / tasks * time.Duration(i))))
		todo <- i
		if i == tasks/2 {
			kill(t, first)
		}
	}
	close(todo)
	wg.Wait()
	offered := time.Since(start)
	missing := func() (n int) {
		counts := done(t, dir)
		for i := range tasks {
			if counts[strconv.Itoa(i)] == 0 {
				n++
			}
		}
		return n
	}
	poll(t, "all are done", func() bool { return missing() == 0 })
	ended := time.Since(start)
	poll(t, "the poison is among the dead letters", func() bool {
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d == fallback.Depth{Dead: before.Dead + poison}
	})
	counts := done(t, dir)
	assert.Len(t, counts, tasks)
	twice := 0
	for _, n := range counts {
		if n > 1 {
			twice++
		}
	}
	assert.EqualValues(t, tasks+poison, q.DeferSnapshot().Accepted)
	t.Logf("confirmed %d tasks in %v (%.0f/s), done after %v (%.0f/s); %d done twice",
		tasks+poison, offered.Round(time.Millisecond), float64(tasks+poison)/offered.Seconds(),
		ended.Round(time.Millisecond), float64(tasks)/ended.Seconds(), twice)
}

// Both sides connect again, and nothing is lost on the way.
func reconnects(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue = "reconnects"
	relay := newRelay(t, b.URL)
	b.URL = "amqp://guest:guest@" + relay.addr + "/"
	q := newQueue(t, b)
	var mu sync.Mutex
	seen := map[string]int{}
	var errs []error
	w, _ := runWorker(t, amqpdefer.WorkerConfig{
		Broker:  b,
		OnError: func(err error) { mu.Lock(); defer mu.Unlock(); errs = append(errs, err) },
		Handlers: map[string]fallback.Handler{"a": func(_ context.Context, d fallback.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[d.Key]++
			return nil
		}},
	})
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() { assert.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: strconv.Itoa(i)})) })
		if i%100 == 50 {
			relay.cut()
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	poll(t, "all are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 300
	})
	assert.Positive(t, q.DeferSnapshot().Reconnects)
	assert.EqualValues(t, 300, q.DeferSnapshot().Accepted)
	assert.GreaterOrEqual(t, w.Snapshot().Done, uint64(300))
	mu.Lock()
	assert.NotEmpty(t, errs)
	mu.Unlock()

	// With no connection, the caller's context ends the wait, and the error says why.
	relay.refuse()
	relay.cut()
	poll(t, "it is noticed", func() bool { return !q.DeferSnapshot().Connected })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := q.Enqueue(ctx, fallback.Task{Kind: "a", Key: "late"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 1, q.DeferSnapshot().Unconfirmed)
}

// relay stands between a client and the broker, and can be cut.
type relay struct {
	addr string
	l    net.Listener

	mu      sync.Mutex
	refuses bool
	conns   []net.Conn
}

func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	uri, err := amqp.ParseURI(url)
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{addr: l.Addr().String(), l: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))) //nolint:noctx // on loopback
			if err != nil || !r.add(in, out) {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					buf := make([]byte, 32<<10)
					for {
						n, err := pair[0].Read(buf)
						if n > 0 {
							_, _ = pair[1].Write(buf[:n])
						}
						if err != nil {
							_, _ = pair[0].Close(), pair[1].Close()
							return
						}
					}
				})
			}
		}
	})
	t.Cleanup(func() {
		r.refuse()
		r.cut()
		wg.Wait()
	})
	return r
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.refuses {
		r.conns = append(r.conns, conns...)
	}
	return !r.refuses
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *relay) refuse() {
	r.mu.Lock()
	r.refuses = true
	r.mu.Unlock()
	_ = r.l.Close()
}

// A queue that somebody has deleted is an error, and declared again.
func unroutable(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue = "deleted"
	q := newQueue(t, b)
	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"}))
	channel(t, url, func(ch *amqp.Channel) {
		_, err := ch.QueueDelete(b.Queue, false, false, false)
		require.NoError(t, err)
	})
	require.ErrorIs(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "2"}), amqpdefer.ErrUnroutable)
	poll(t, "it is there again", func() bool { return q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "2"}) == nil })
	assert.Positive(t, q.DeferSnapshot().Refused)
}

// A queue that is full refuses, and the caller is told.
func refused(t *testing.T, url string, ctl func(...string)) {
	t.Helper()
	ctl("set_policy", "full", "^full$", `{"max-length":1}`, "--apply-to", "queues")
	b := settings(url)
	b.Queue = "full"
	q := newQueue(t, b)
	poll(t, "it is full", func() bool {
		err := q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"})
		return errors.Is(err, amqpdefer.ErrRefused)
	})
	assert.EqualValues(t, 1, q.DeferSnapshot().Refused)
}

// A task that kills each worker that begins it ends among the dead letters.
func killsItsWorkers(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue, b.MaxReturns = "kills", 2
	q := newQueue(t, b)
	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"}))
	for range 1 + b.MaxReturns {
		channel(t, url, func(ch *amqp.Channel) {
			poll(t, "it comes again", func() bool {
				_, ok, err := ch.Get(b.Queue, false)
				require.NoError(t, err)
				return ok
			})
		}) // closed, and not acknowledged
	}
	poll(t, "it is dead", func() bool {
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d == fallback.Depth{Dead: 1}
	})
}

// What was declared with other settings is an error that says so.
func otherTopology(t *testing.T, url string) {
	t.Helper()
	b := settings(url)
	b.Queue = "other"
	require.NoError(t, newQueue(t, b).Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"}))
	b.MaxReturns = 7
	q := newQueue(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorContains(t, q.Enqueue(ctx, fallback.Task{Kind: "a", Key: "2"}), "PRECONDITION_FAILED")
	_, err := q.Depth(ctx)
	require.Error(t, err)
}

func channel(t *testing.T, url string, do func(*amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	ch, err := conn.Channel()
	require.NoError(t, err)
	do(ch)
}

func TestBrokerAway(t *testing.T) {
	q := newQueue(t, amqpdefer.Broker{URL: "amqp://127.0.0.1:1"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := q.Enqueue(ctx, fallback.Task{Kind: "a", Key: "1"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "connection refused")
	require.NoError(t, q.Close(t.Context()))
	require.ErrorIs(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"}), amqpdefer.ErrClosed)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	bad := amqpdefer.Broker{URL: "http://user:secret@host", MaxAttempts: -1, MaxReturns: -1, Delays: []time.Duration{0}}
	_, err := amqpdefer.NewQueue(amqpdefer.QueueConfig{Broker: bad, MaxInFlight: -1})
	for _, field := range []string{"URL", "MaxAttempts", "MaxReturns", "Delays", "MaxInFlight"} {
		require.ErrorContains(t, err, "amqpdefer."+field+": ")
	}
	assert.NotContains(t, err.Error(), "secret")
	_, err = amqpdefer.NewWorker(amqpdefer.WorkerConfig{Broker: bad, Consumers: -1, Prefetch: 65536, Timeout: -1, Shutdown: -1})
	for _, field := range []string{"URL", "MaxAttempts", "Delays", "Handlers", "Consumers", "Prefetch", "Timeout", "Shutdown"} {
		require.ErrorContains(t, err, "amqpdefer."+field+": ")
	}
}
