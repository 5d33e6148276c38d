package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// subject is one call of a library.
type subject struct {
	name string
	call func(ctx context.Context) error

	took   []time.Duration // of a call, one for each round
	script []float64       // of its script in the server, in microseconds, likewise
	allocs float64         // of a call, in the client
}

// batch is how many calls the callers of a batch make together.
const batch = 100

// calls measures single calls, by one caller and by fifty.
func calls(addr string, rounds, batches int) error {
	// All have the same client, so the same connections, and the same limit: far above what is
	// asked for.
	client := redislimit.NewClient(&redis.UniversalOptions{Addrs: []string{addr}})
	defer client.Close()
	const rate = 1_000_000
	l, err := redislimit.New("", redislimit.Config{
		Client: client, Limits: []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: rate}}},
		Settings: sharedlimit.Settings{Nodes: 1, Timeout: time.Minute},
	})
	if err != nil {
		return err
	}
	defer l.Close(context.Background())
	peer := redis_rate.NewLimiter(client)
	theirs := func(ctx context.Context) error {
		r, err := peer.AllowN(ctx, "bench", redis_rate.PerSecond(rate), 1)
		if err == nil && r.Allowed == 0 {
			err = errors.New("redis_rate refused")
		}
		return err
	}
	// Ours gives up after a time by itself. Who wants that of the peer gives it a context.
	bounded := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return theirs(ctx)
	}
	for _, callers := range []int{1, 50} {
		subjects := []*subject{
			{name: "breakwater", call: func(ctx context.Context) error { return l.Wait(ctx, 1) }},
			{name: "redis_rate", call: bounded},
			{name: "redis_rate-without-a-timeout", call: theirs},
		}
		if err := compare(client, subjects, callers, rounds, batches); err != nil {
			return err
		}
		for _, s := range subjects {
			took := median(s.took)
			fmt.Printf("%2d callers  %-28s %8s a call, %6.0f calls/s; script %.2f µs; %.1f allocations\n",
				callers, s.name, took, float64(callers)/took.Seconds(), median(s.script), s.allocs)
		}
		ours := subjects[0]
		for _, s := range subjects[1:] {
			var ratios, scripts []float64
			for i := range ours.took {
				ratios = append(ratios, float64(ours.took[i])/float64(s.took[i]))
				scripts = append(scripts, ours.script[i]/s.script[i])
			}
			slices.Sort(ratios)
			fmt.Printf("ratio %d-callers/%s %.3f %.3f %.3f\n", callers, s.name, median(ratios), ratios[len(ratios)/4], ratios[len(ratios)*3/4])
			fmt.Printf("server %d-callers/%s %.3f\n", callers, s.name, median(scripts))
		}
	}
	return nil
}

// median returns the middle of what was measured.
func median[T float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// compare measures the subjects in batches that take turns. No subject is always first.
func compare(client redis.UniversalClient, subjects []*subject, callers, rounds, batches int) error {
	for _, s := range subjects { // connections are made, scripts are loaded
		if _, err := measure(s.call, callers); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		n, err := allocations(s.call)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.allocs = n
	}
	for round := range rounds {
		took := make([]time.Duration, len(subjects))
		script := make([]scripts, len(subjects))
		for i := range batches {
			for j := range subjects {
				k := (round + i + j) % len(subjects)
				before, err := statistics(client)
				if err != nil {
					return err
				}
				t, err := measure(subjects[k].call, callers)
				if err != nil {
					return fmt.Errorf("%s: %w", subjects[k].name, err)
				}
				after, err := statistics(client)
				if err != nil {
					return err
				}
				took[k] += t
				script[k].calls += after.calls - before.calls
				script[k].usec += after.usec - before.usec
			}
		}
		for k, s := range subjects {
			s.took = append(s.took, took[k]*time.Duration(callers)/time.Duration(batches*per(callers)*callers))
			s.script = append(s.script, script[k].usec/script[k].calls)
		}
	}
	return nil
}

// per returns how many calls each caller makes in a batch.
func per(callers int) int { return max(batch/callers, 10) }

// measure returns how long a batch takes.
func measure(call func(context.Context) error, callers int) (time.Duration, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for range per(callers) {
				if err := call(context.Background()); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(start), nil
}

// allocations returns the number of allocations of a call.
func allocations(call func(context.Context) error) (float64, error) {
	const calls = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if err := call(context.Background()); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / calls, nil
}

// scripts are what a server says about the scripts that it has run.
type scripts struct{ calls, usec float64 }

var evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// statistics asks the server about its scripts.
func statistics(c redis.UniversalClient) (scripts, error) {
	info, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return scripts{}, err
	}
	m := evalsha.FindStringSubmatch(info)
	if m == nil {
		return scripts{}, errors.New("redis-server does not count scripts")
	}
	calls, _ := strconv.ParseFloat(m[1], 64) // digits
	usec, _ := strconv.ParseFloat(m[2], 64)
	return scripts{calls, usec}, nil
}
