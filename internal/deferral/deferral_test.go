package deferral_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/internal/deferral"
	"github.com/breakwater-go/breakwater/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

func TestVerdicts(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context //nolint:containedctx // a test's input
		attempt int
		h       fallback.Handler
		want    deferral.Verdict
		err     error
	}{
		{name: "done", h: func(context.Context, fallback.Delivery) error { return nil }, want: deferral.Done},
		{name: "failed", h: func(context.Context, fallback.Delivery) error { return errDown }, want: deferral.Again, err: errDown},
		{name: "failed at last", attempt: 3, h: func(_ context.Context, d fallback.Delivery) error {
			if d.Last {
				return errDown
			}
			return nil
		}, want: deferral.Dead, err: errDown},
		{name: "begun too often", attempt: 4, h: func(context.Context, fallback.Delivery) error { return nil }, want: deferral.Dead, err: deferral.ErrTooOften},
		{name: "permanent", h: func(context.Context, fallback.Delivery) error { return policy.AsPermanent(errDown) }, want: deferral.Dead, err: errDown},
		{name: "refused", attempt: 3, h: func(context.Context, fallback.Delivery) error {
			return &policy.RejectedError{Reason: policy.ReasonOpen}
		}, want: deferral.Postponed, err: policy.ErrRejected},
		{name: "worker ends", ctx: ended, attempt: 3, h: func(ctx context.Context, _ fallback.Delivery) error { return ctx.Err() }, want: deferral.Postponed, err: context.Canceled},
		{name: "too slow", h: func(ctx context.Context, _ fallback.Delivery) error { <-ctx.Done(); return ctx.Err() }, want: deferral.Again, err: context.DeadlineExceeded},
		{name: "panic", h: func(context.Context, fallback.Delivery) error { panic(errDown) }, want: deferral.Again, err: errDown},
		{name: "goexit", h: func(context.Context, fallback.Delivery) error { runtime.Goexit(); return nil }, want: deferral.Again, err: policy.ErrGoexit},
		{name: "unknown", want: deferral.Again, err: deferral.ErrUnknownKind},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &deferral.Runner{Handlers: map[string]fallback.Handler{"a": tt.h}, MaxAttempts: 3, Timeout: 20 * time.Millisecond}
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			v, err := r.Run(ctx, fallback.Delivery{Task: fallback.Task{Kind: "a"}, Attempt: max(tt.attempt, 1)})
			assert.Equal(t, tt.want, v)
			if tt.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tt.err)
			}
			s := r.Snapshot()
			assert.EqualValues(t, 1, s.Done+s.Failed+s.Postponed+s.Dead)
			assert.Zero(t, s.Running)
		})
	}
}

func TestDelayProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		least := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "least"))
		most := time.Duration(rapid.Int64Range(int64(least), int64(1000*time.Hour)).Draw(rt, "most"))
		n := rapid.IntRange(0, 1000).Draw(rt, "n")
		after := time.Duration(rapid.Int64().Draw(rt, "after"))
		d := deferral.Delay(n, nil, least, most)
		require.GreaterOrEqual(rt, d, least/2)
		require.LessOrEqual(rt, d, most)
		d = deferral.Delay(n, &policy.RejectedError{RetryAfter: after}, least, most)
		require.GreaterOrEqual(rt, d, min(after, most))
		require.LessOrEqual(rt, d, most)
	})
}

func TestCheckHandlers(t *testing.T) {
	t.Parallel()
	h := func(context.Context, fallback.Delivery) error { return nil }
	require.NoError(t, deferral.CheckHandlers("worker", map[string]fallback.Handler{"a": h}))
	require.EqualError(t, deferral.CheckHandlers("worker", nil), "worker.Handlers: want at least one")
	require.EqualError(t, deferral.CheckHandlers("worker", map[string]fallback.Handler{"a": nil}), `worker.Handlers: "a": want a function, not nil`)
	require.ErrorContains(t, deferral.CheckHandlers("worker", map[string]fallback.Handler{"": h}), "task.Kind")
}
