package policy_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// A function that is canceled by something of its own has not been given up by its
// caller, with a retry policy as without one.
func TestCanceledOfItsOwnIsNotTheCallers(t *testing.T) {
	t.Parallel()
	own := fmt.Errorf("stream: %w", context.Canceled)
	for name, policies := range map[string][]policy.Policy{
		"plain":   nil,
		"retried": {retry.Config{}},
		"bounded": {retry.Config{}, policy.Timeouts{Total: time.Hour}},
	} {
		calls := 0
		_, err := policy.Do(t.Context(), build(t, policies...), func(context.Context) (int, error) { calls++; return 0, own })
		assert.Equal(t, own, err, name) //nolint:testifylint // identity
		assert.Equal(t, 1, calls, name)
	}
}

// unsure is a retry policy that stops for a reason which does not exist.
type unsure struct{ retrier }

func (u *unsure) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: u}, nil
}

func (u *unsure) Decide(policy.RetryState) policy.Decision {
	return policy.Decision{Stop: policy.NumStops}
}

func TestUnknownStopIsNoIndex(t *testing.T) {
	t.Parallel()
	p := build(t, &unsure{})
	_, err := policy.Do(t.Context(), p, fail)
	assert.Equal(t, errBoom, err) //nolint:testifylint // identity
	assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Retry.Stopped[policy.StopOutcome])
}

// A later attempt that ends with its context is counted like a first one that does.
func TestStopIsCountedWhenALaterAttemptEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end  func(context.Context) (context.Context, context.CancelFunc)
			want policy.Stop
		}{
			"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			}, policy.StopDeadline},
			"canceled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, policy.StopCanceled},
		} {
			rec := &recorder{}
			p := build(t, &retrier{max: 5}, policy.Observe(rec))
			ctx, cancel := c.end(t.Context())
			calls := 0
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
				if calls++; calls == 2 {
					<-ctx.Done()
				}
				return 0, errBoom
			})
			cancel()
			require.ErrorIs(t, err, errBoom, name)
			assert.Equal(t, 2, calls, name)
			assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Retry.Stopped[c.want], name)
			assert.Equal(t, []string{"retry", "stopped"}, rec.kinds(), name)
		}
	})
}

// A pipeline that is closed while a call runs lets the attempt end, and makes no other.
func TestCloseDuringACall(t *testing.T) {
	t.Parallel()
	for name, policies := range map[string][]policy.Policy{
		"plain":   nil,
		"bounded": {policy.Timeouts{Total: time.Hour, Attempt: time.Hour}},
		"foreign": {failsafex.Policy("cb", circuitbreaker.NewBuilder[any]().WithFailureThreshold(10).Build())},
	} {
		g, r, rec := &gate{limit: 1}, &retrier{max: 3}, &recorder{}
		p := build(t, append(policies, g, r, policy.Observe(rec))...)
		_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
			assert.NoError(t, p.Close(ctx))
			assert.NoError(t, ctx.Err(), "a call that runs is let be")
			return 0, errBoom
		})
		require.ErrorIs(t, err, errBoom, name)
		require.ErrorIs(t, err, policy.ErrClosed, name)
		assert.Equal(t, []policy.Kind{policy.Failure}, g.kinds(), name)
		assert.Equal(t, 1, r.undos, name)
		assert.Zero(t, g.held(), name)
		snap := p.Snapshot()
		assert.Equal(t, uint64(1), snap.Calls[policy.Failure], name)
		last := snap.Policies[len(snap.Policies)-1]
		assert.Equal(t, uint64(1), last.Rejected[policy.ReasonClosed], name)
		_, err = p.Enter(t.Context())
		require.ErrorIs(t, err, policy.ErrClosed, name)
	}
}

// What kept the call from being tried again is what the error says and what is counted,
// also when the context has ended by then.
func TestLastAttemptIsNotTheDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		permanent := policy.AsPermanent(errBoom)
		for name, c := range map[string]struct {
			max  int
			call policy.Call
			err  error
			want policy.Stop
		}{
			"attempts": {1, policy.Call{}, errBoom, policy.StopAttempts},
			"outcome":  {3, policy.Call{}, permanent, policy.StopOutcome},
			"call":     {3, policy.Call{NoRetry: true}, errBoom, policy.StopCall},
		} {
			for _, bounds := range [][]policy.Policy{nil, {policy.Timeouts{Total: 2 * time.Second}}} {
				p := build(t, append(bounds, &retrier{max: c.max})...)
				ctx, cancel := context.WithTimeout(policy.WithCall(t.Context(), c.call), time.Second)
				_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, c.err })
				cancel()
				assert.Equal(t, c.err, err, name)
				ps := p.Snapshot().Policies
				assert.Equal(t, uint64(1), ps[len(ps)-1].Retry.Stopped[c.want], name)
			}
		}
	})
}
