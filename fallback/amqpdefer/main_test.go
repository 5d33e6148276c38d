package amqpdefer_test

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

	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/amqpdefer"
)

// The variable that makes a test binary a worker, with the URL of the broker.
const workerEnv = "BREAKWATER_TEST_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerEnv); url != "" {
		if err := work(url, os.Getenv("BREAKWATER_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// settings are those of both sides.
func settings(url string) amqpdefer.Broker {
	return amqpdefer.Broker{URL: url, MaxAttempts: 3, Delays: []time.Duration{50 * time.Millisecond}}
}

// work is the main function of a worker process. It writes down what it has done in a file
// of its own.
func work(url, dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "done-"+strconv.Itoa(os.Getpid())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	w, err := amqpdefer.NewWorker(amqpdefer.WorkerConfig{
		Broker: settings(url), Consumers: 5,
		OnError: func(err error) { fmt.Fprintln(os.Stderr, err) },
		Handlers: map[string]fallback.Handler{
			"work": func(_ context.Context, d fallback.Delivery) error {
				_, err := fmt.Fprintln(file, d.Key, d.Attempt)
				return err
			},
			"poison": func(context.Context, fallback.Delivery) error { return errors.New("poison") },
			"hang": func(ctx context.Context, d fallback.Delivery) error {
				if d.Returned == 0 {
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
	w.Run(ctx)
	return nil
}
