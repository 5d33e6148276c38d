package asynqdefer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/asynqdefer"
	"github.com/breakwater-go/breakwater/policy"
)

var errDown = errors.New("down")

func newQueue(t *testing.T, cfg asynqdefer.QueueConfig) *asynqdefer.Queue {
	t.Helper()
	q, err := asynqdefer.NewQueue(cfg)
	require.NoError(t, err)
	return q
}

// runWorker runs a worker until the test ends, or the returned function is called.
func runWorker(t *testing.T, cfg asynqdefer.WorkerConfig) (*asynqdefer.Worker, func()) {
	t.Helper()
	w, err := asynqdefer.NewWorker(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return w, stop
}

func TestDeferAndWork(t *testing.T) {
	client := startRedis(t)
	q := newQueue(t, asynqdefer.QueueConfig{Redis: client, Retention: time.Hour})
	p, err := policy.New("orders", fallback.Defer[string]{
		Queue: q, Timeout: 10 * time.Second,
		Accepted: func(t fallback.Task) string { return t.Key + " accepted" },
	})
	require.NoError(t, err)
	hand := func(kind, key string) (string, error) {
		ctx := fallback.WithTask(t.Context(), fallback.Task{Kind: kind, Key: key, Payload: []byte("payload"), Header: map[string]string{"trace": "1"}})
		return policy.Do(ctx, p, func(context.Context) (string, error) { return "", errDown })
	}
	for _, kind := range []string{"ok", "fails", "gone", "flaky", "refused", "panics", "unknown"} {
		v, err := hand(kind, "1")
		require.NoError(t, err, kind)
		assert.Equal(t, "1 accepted", v)
	}
	_, err = hand("ok", "1")
	require.NoError(t, err, "the same again")
	s := p.Snapshot().Policies[0].Fallback
	assert.EqualValues(t, 8, s.Served)
	assert.Equal(t, policy.DeferSnapshot{Accepted: 8, Duplicates: 1, Connected: true}, *s.Defer)
	depth, err := q.Depth(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fallback.Depth{Ready: 7}, depth)

	var mu sync.Mutex
	attempts := map[string][]int{}
	refusals := 0
	var failures []string
	note := func(d fallback.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		attempts[d.Kind] = append(attempts[d.Kind], d.Attempt)
	}
	w, stop := runWorker(t, asynqdefer.WorkerConfig{
		Redis: client, MaxAttempts: 3, MinDelay: 10 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
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
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d.Ready+d.Running+d.Waiting == 0
	})
	depth, err = q.Depth(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, depth.Dead)
	stop()
	assert.Equal(t, map[string][]int{
		"ok": {1}, "fails": {1, 2, 3}, "gone": {1}, "flaky": {1, 2, 3}, "refused": {1, 1, 1, 1, 1, 1}, "panics": {1, 2, 3},
	}, attempts)
	slices.Sort(failures)
	assert.Equal(t, []string{"fails", "gone", "panics", "unknown"}, failures)
	assert.Equal(t, fallback.WorkerSnapshot{Done: 3, Failed: 2 + 2 + 2 + 2, Postponed: 5, Dead: 4}, w.Snapshot())

	_, err = hand("ok", "1")
	require.NoError(t, err, "what was done is remembered")
	_, err = hand("gone", "1")
	require.ErrorIs(t, err, asynqdefer.ErrDead, "it would not be done")
	require.ErrorIs(t, err, errDown)
}

// A worker that stops lets running handlers end, and puts back what takes longer.
func TestWorkerStops(t *testing.T) {
	client := startRedis(t)
	q := newQueue(t, asynqdefer.QueueConfig{Redis: client})
	started := make(chan struct{}, 10)
	w, stop := runWorker(t, asynqdefer.WorkerConfig{
		Redis: client, Shutdown: 100 * time.Millisecond,
		Handlers: map[string]fallback.Handler{"slow": func(ctx context.Context, _ fallback.Delivery) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}},
	})
	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "slow", Key: "1"}))
	<-started
	stop()
	d, err := q.Depth(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fallback.Depth{Ready: 1}, d)
	poll(t, "the handler has ended", func() bool { return w.Snapshot().Running == 0 })
	again, _ := runWorker(t, asynqdefer.WorkerConfig{
		Redis: client, MaxAttempts: 1,
		Handlers: map[string]fallback.Handler{"slow": func(context.Context, fallback.Delivery) error { return nil }},
	})
	poll(t, "it is done by the next worker", func() bool { return again.Snapshot().Done == 1 })
}

// A worker that dies in the middle of a task leaves it to another.
func TestWorkerKilledMidTask(t *testing.T) {
	client := startRedis(t)
	addr, dir := client.Options().Addr, t.TempDir()
	q := newQueue(t, asynqdefer.QueueConfig{Redis: client})
	first := startWorker(t, addr, dir)
	require.NoError(t, q.Enqueue(t.Context(), fallback.Task{Kind: "hang", Key: "1"}))
	poll(t, "the handler has begun", func() bool {
		_, err := os.Stat(filepath.Join(dir, "hanging"))
		return err == nil
	})
	kill(t, first)
	assert.Empty(t, done(t, dir))
	d, err := q.Depth(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fallback.Depth{Running: 1}, d, "Redis does not know yet")
	require.NoError(t, expireLeases(t.Context(), client))
	startWorker(t, addr, dir)
	poll(t, "another has done it", func() bool { return done(t, dir)["1"] == 1 })
}

// 5,000 tasks a second for two seconds, one of the workers killed midway: each is done at
// least once, none is lost, and those that cannot be done are among the dead letters.
func TestThousandsOfTasksSurviveAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	client := startRedis(t)
	addr, dir := client.Options().Addr, t.TempDir()
	const (
		tasks, poison = 10_000, 20
		length        = 2 * time.Second
	)
	first := startWorker(t, addr, dir)
	startWorker(t, addr, dir)
	q := newQueue(t, asynqdefer.QueueConfig{Redis: client})

	start := time.Now()
	todo := make(chan int, tasks+poison)
	var wg sync.WaitGroup
	for range 25 {
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
	killed := false
	for i := range tasks {
		time.Sleep(time.Until(start.Add(length / tasks * time.Duration(i))))
		todo <- i
		if !killed && i == tasks/2 {
			kill(t, first)
			killed = true
		}
	}
	close(todo)
	wg.Wait()
	offered := time.Since(start)
	poll(t, "the other worker has done what is left", func() bool {
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d.Ready+d.Waiting == 0
	})
	d, err := q.Depth(t.Context())
	require.NoError(t, err)
	require.NoError(t, expireLeases(t.Context(), client))
	startWorker(t, addr, dir)
	poll(t, "a new worker has done what the dead one had begun", func() bool {
		d, err := q.Depth(t.Context())
		require.NoError(t, err)
		return d.Ready+d.Waiting+d.Running == 0
	})
	ended := time.Since(start)

	counts := done(t, dir)
	twice := 0
	for i := range tasks {
		n := counts[strconv.Itoa(i)]
		if n == 0 {
			t.Errorf("task %d was lost", i)
		}
		if n > 1 {
			twice++
		}
	}
	assert.Len(t, counts, tasks)
	d2, err := q.Depth(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fallback.Depth{Dead: poison}, d2)
	assert.EqualValues(t, tasks+poison, q.DeferSnapshot().Accepted)
	t.Logf("offered %d tasks in %v (%.0f/s), done after %v (%.0f/s); %d in the hands of the killed worker, %d done twice",
		tasks+poison, offered.Round(time.Millisecond), float64(tasks+poison)/offered.Seconds(),
		ended.Round(time.Millisecond), float64(tasks)/ended.Seconds(), d.Running, twice)
}

func TestRedisAway(t *testing.T) {
	client := connect("127.0.0.1:1")
	defer func() { _ = client.Close() }()
	q := newQueue(t, asynqdefer.QueueConfig{Redis: client})
	require.Error(t, q.Enqueue(t.Context(), fallback.Task{Kind: "a", Key: "1"}))
	assert.Equal(t, policy.DeferSnapshot{Unconfirmed: 1}, q.DeferSnapshot())
	_, err := q.Depth(t.Context())
	require.Error(t, err)
	w, err := asynqdefer.NewWorker(asynqdefer.WorkerConfig{
		Redis:    client,
		Handlers: map[string]fallback.Handler{"a": func(context.Context, fallback.Delivery) error { return nil }},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, w.Run(ctx), "it waits for Redis")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := asynqdefer.NewQueue(asynqdefer.QueueConfig{Retention: -1})
	require.ErrorContains(t, err, "asynqdefer.Redis: want a client, not nil")
	require.ErrorContains(t, err, "asynqdefer.Retention: -1ns")
	_, err = asynqdefer.NewWorker(asynqdefer.WorkerConfig{Concurrency: -1, MaxAttempts: -1, Timeout: -1, MinDelay: -1, MaxDelay: -1, Shutdown: -1})
	for _, field := range []string{"Redis", "Handlers", "Concurrency", "MaxAttempts", "Timeout", "MinDelay", "MaxDelay", "Shutdown"} {
		require.ErrorContains(t, err, "asynqdefer."+field+": ")
	}
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }()
	_, err = asynqdefer.NewWorker(asynqdefer.WorkerConfig{
		Redis: client, MaxDelay: time.Millisecond,
		Handlers: map[string]fallback.Handler{"a": func(context.Context, fallback.Delivery) error { return nil }},
	})
	require.ErrorContains(t, err, "asynqdefer.MaxDelay: 1ms: at least MinDelay")
}
