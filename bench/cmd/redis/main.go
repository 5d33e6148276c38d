// Command redis measures limits in Redis beside go-redis/redis_rate, in turn and against one
// redis-server that it starts and stops, and prints the medians: a table for people, then
// lines for programs:
//
//	ratio <case> <our time / the peer's time>
//	leases <demand> <calls for each round trip> <error of the total, %>
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
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

func main() {
	rounds := flag.Int("rounds", 10, "number of interleaved rounds")
	each := flag.Duration("each", 300*time.Millisecond, "time to measure each subject in a round")
	flag.Parse()
	if err := run(*rounds, *each); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds int, each time.Duration) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	if err := calls(addr, rounds, each); err != nil {
		return err
	}
	for _, demand := range []int{5000, 9000} {
		if err := leases(addr, demand); err != nil {
			return err
		}
	}
	return nil
}

func startRedis() (addr string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_ = l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", os.TempDir()) //nolint:noctx // stopped by its id
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("needs the Debian package redis-server: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	for range 500 {
		if c.Ping(context.Background()).Err() == nil {
			return addr, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("redis-server does not answer")
}

// subject is one call of a library.
type subject struct {
	name string
	call func(ctx context.Context) error
	took []time.Duration // of a call, one for each round
}

// calls measures single calls, by one caller and by fifty.
func calls(addr string, rounds int, each time.Duration) error {
	// Both get the same client, and the same limit: far above what is asked for.
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
	ours := func(ctx context.Context) error { return l.Wait(ctx, 1) }
	theirs := func(ctx context.Context) error {
		r, err := peer.Allow(ctx, "bench", redis_rate.PerSecond(rate))
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
		subjects := []*subject{{name: "breakwater", call: ours}, {name: "redis_rate", call: bounded}, {name: "redis_rate without a timeout", call: theirs}}
		for i := range rounds {
			for j := range subjects {
				s := subjects[(i+j)%len(subjects)] // neither is always first
				took, err := measure(s.call, callers, each)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				s.took = append(s.took, took)
			}
		}
		var medians []time.Duration
		for _, s := range subjects {
			slices.Sort(s.took)
			medians = append(medians, s.took[len(s.took)/2])
			fmt.Printf("%2d callers  %-28s %8s a call, %6.0f calls/s\n", callers, s.name, medians[len(medians)-1], float64(callers)/medians[len(medians)-1].Seconds())
		}
		for i, name := range []string{"redis_rate", "redis_rate-without-a-timeout"} {
			fmt.Printf("ratio %d-callers/%s %.3f\n", callers, name, float64(medians[0])/float64(medians[i+1]))
		}
	}
	return nil
}

// measure returns how long a call takes its caller.
func measure(call func(context.Context) error, callers int, each time.Duration) (time.Duration, error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(start) < each {
				if err := call(context.Background()); err != nil {
					failed.Store(&err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(start) * time.Duration(callers) / time.Duration(n.Load()), nil
}

// leases lets four nodes ask at a steady rate, 70 % of it from one, against a limit of
// 6,000/s and a burst of 600.
func leases(addr string, demand int) error {
	const rate, burst = 6000, 600
	shares := []int{7, 1, 1, 1}
	var nodes []*sharedlimit.Limiter
	for range shares {
		l, err := redislimit.New("leases"+strconv.Itoa(demand), redislimit.Config{
			Options:  &redis.UniversalOptions{Addrs: []string{addr}},
			Limits:   []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: burst}}},
			Settings: sharedlimit.Settings{Nodes: len(shares), LeaseFor: 500 * time.Millisecond, Timeout: time.Second},
		})
		if err != nil {
			return err
		}
		defer l.Close(context.Background())
		nodes = append(nodes, l)
	}
	var wg sync.WaitGroup
	var asked, passed atomic.Int64
	trips := func() (n uint64) {
		for _, l := range nodes {
			n += l.Snapshot(time.Now()).Limiter.Shared.RoundTrips
		}
		return n
	}
	// The first second is not measured: there is a burst, and nobody knows his rate yet.
	const warm, length = time.Second, 6 * time.Second
	start := time.Now()
	for i, l := range nodes {
		interval := 10 * time.Second / time.Duration(demand*shares[i])
		wg.Go(func() {
			for next := start; next.Sub(start) < length; next = next.Add(interval) {
				for time.Now().Before(next) {
					time.Sleep(time.Millisecond)
				}
				asked.Add(1)
				if l.Wait(context.Background(), 1) == nil {
					passed.Add(1)
				}
			}
		})
	}
	time.Sleep(warm)
	begin, asked0, passed0, trips0 := time.Now(), asked.Load(), passed.Load(), trips()
	time.Sleep(length - warm - 100*time.Millisecond)
	took, calls, let, questions := time.Since(begin), asked.Load()-asked0, passed.Load()-passed0, trips()-trips0
	wg.Wait()
	want := min(float64(calls), rate*took.Seconds())
	off := 100 * (float64(let)/want - 1)
	fmt.Printf("leases at %d/s over 4 nodes: %d of %d calls passed in %s, %.0f should have; %d round trips\n", demand, let, calls, took.Round(time.Millisecond), want, questions)
	fmt.Printf("leases %d %.1f %+.2f\n", demand, float64(calls)/float64(questions), off)
	return nil
}
