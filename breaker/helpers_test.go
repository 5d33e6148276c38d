package breaker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

const ms = time.Millisecond

var errDown = errors.New("down")

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	return p
}

func newBreaker(t *testing.T, cfg breaker.Config) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New("", cfg)
	require.NoError(t, err)
	return b
}

// call runs a function through p that returns err at once.
func call(t *testing.T, p *policy.Pipeline, err error) error {
	t.Helper()
	_, got := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 1, err })
	return got
}

// callFor runs a function through p that takes d, or until its context ends.
func callFor(ctx context.Context, p *policy.Pipeline, d time.Duration, err error) error {
	_, got := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return 1, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	return got
}

func callMany(t *testing.T, p *policy.Pipeline, n int, err error) {
	t.Helper()
	for range n {
		require.ErrorIs(t, call(t, p, err), err)
	}
}

// snapshot returns what p says of its policy called name.
func snapshot(t *testing.T, p *policy.Pipeline, name string) policy.PolicySnapshot {
	t.Helper()
	for _, s := range p.Snapshot().Policies {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no such policy", name)
	return policy.PolicySnapshot{}
}

// look returns the state of p's breaker.
func look(t *testing.T, p *policy.Pipeline) policy.BreakerSnapshot {
	t.Helper()
	return *snapshot(t, p, "breaker").Breaker
}

func requireRefused(t *testing.T, err error, reason policy.Reason, after time.Duration) {
	t.Helper()
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "want a refusal, got %v", err)
	require.ErrorIs(t, err, breaker.ErrOpen)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.Equal(t, reason, re.Reason, "%v", err)
	require.Equal(t, after, re.RetryAfter, "%v", err)
}

// full is a gate behind the breaker that has no room.
type full struct{ reason policy.Reason }

func (f full) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "full", Gate: f}, nil
}
func (f full) Peek(*policy.Attempt) error { return nil }
func (f full) Enter(context.Context, *policy.Attempt, int) error {
	return &policy.RejectedError{Reason: f.reason}
}
func (f full) Leave(*policy.Attempt, int, policy.Outcome) {}
