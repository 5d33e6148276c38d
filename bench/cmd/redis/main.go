// Command redis measures limits in Redis beside go-redis/redis_rate, in turn and against one
// redis-server that it starts and stops: a table for people, then lines for programs:
//
//	ratio <case> <our time / the peer's time> <first quartile> <third quartile>
//	server <case> <our time in the script / the peer's>
//	leases <demand> <calls for each round trip> <error of the total, %>
//
// The libraries are asked in batches of a few milliseconds, one after the other, so that what
// else the machine does falls on both. The ratio is that of a round, of which there are many;
// what is printed is their median and quartiles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

func main() {
	rounds := flag.Int("rounds", 40, "number of rounds, each of which gives a ratio")
	batches := flag.Int("batches", 20, "number of batches of each library in a round")
	withLeases := flag.Bool("leases", true, "measure leases too")
	flag.Parse()
	if err := run(*rounds, *batches, *withLeases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds, batches int, withLeases bool) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	if err := calls(addr, rounds, batches); err != nil {
		return err
	}
	if !withLeases {
		return nil
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
