package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The adapter that does nothing: a function under policy.Run.
func TestRun(t *testing.T) {
	conformance.Run(t, conformance.Adapter{
		Pool: true,
		Skip: map[conformance.Case]string{conformance.Abandoned: "a function has no answer to read a part of"},
		Start: func(_ *testing.T, p *policy.Pipeline, c conformance.Case) (call func(context.Context) error, stop func()) {
			return func(ctx context.Context) error {
				return policy.Run(ctx, p, func(ctx context.Context) error { return farEnd(ctx, c) })
			}, func() {}
		},
	})
}

func farEnd(ctx context.Context, c conformance.Case) error {
	switch c {
	case conformance.Slow:
		time.Sleep(conformance.Slowness)
	case conformance.Canceled, conformance.Deadline:
		<-ctx.Done()
		return ctx.Err()
	case conformance.Panic:
		panic("boom")
	case conformance.Failure, conformance.Gone, conformance.Refused:
		return errors.New("boom")
	case conformance.Success, conformance.Abandoned:
	}
	return nil
}
