package asynqdefer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/asynqdefer"
)

// The variable that makes a test binary a worker, with the address of Redis.
const workerEnv = "BREAKWATER_TEST_WORKER"

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerEnv); addr != "" {
		if err := work(addr, os.Getenv("BREAKWATER_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// It sleeps for a second between dials, and ends after that when its client is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// work is the main function of a worker process. It writes down what it has done in a file
// of its own.
func work(addr, dir string) error {
	client := connect(addr)
	defer func() { _ = client.Close() }()
	file, err := os.OpenFile(filepath.Join(dir, "done-"+strconv.Itoa(os.Getpid())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	w, err := asynqdefer.NewWorker(asynqdefer.WorkerConfig{
		Redis: client, Concurrency: 20, MaxAttempts: 3, MinDelay: 50 * time.Millisecond,
		Handlers: map[string]fallback.Handler{
			"work": func(_ context.Context, d fallback.Delivery) error {
				_, err := fmt.Fprintln(file, d.Key, d.Attempt)
				return err
			},
			"poison": func(context.Context, fallback.Delivery) error { return errors.New("poison") },
			"hang": func(ctx context.Context, d fallback.Delivery) error {
				if d.Attempt == 1 {
					if err := os.WriteFile(filepath.Join(dir, "hanging"), nil, 0o600); err != nil {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				}
				_, err := fmt.Fprintln(file, d.Key, d.Attempt)
				return err
			},
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.Run(ctx)
}

func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 30})
}
