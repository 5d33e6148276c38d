package policy_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// tight is a retrier that answers with a Stop of the test's choice after so many
// attempts.
type tight struct {
	retrier

	stop policy.Stop
	hops []*policy.Hop
}

func (r *tight) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: r}, nil
}

func (r *tight) Decide(s policy.RetryState) policy.Decision {
	r.hops = append(r.hops, s.Hop)
	if s.Attempt >= r.max {
		return policy.Decision{Stop: r.stop}
	}
	return policy.Decision{}
}

func TestHopTellsTheLayersAbove(t *testing.T) {
	t.Parallel()
	never := func(context.Context) (int, error) { return 0, policy.AsBusy(errBoom, -1) }
	tests := []struct {
		name string
		max  int
		stop policy.Stop
		fn   func(context.Context) (int, error)
		want bool
	}{
		{name: "success", max: 3, stop: policy.StopAttempts, fn: succeed},
		{name: "failed, and not retried", max: 1, stop: policy.StopAttempts, fn: fail},
		{name: "failed, retried in vain", max: 2, stop: policy.StopAttempts, fn: fail, want: true},
		{name: "no budget for it", max: 1, stop: policy.StopBudget, fn: fail, want: true},
		{name: "part of a retry itself", max: 1, stop: policy.StopHop, fn: fail},
		{name: "the dependency asked for none", max: 1, stop: policy.StopPushback, fn: never, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &tight{retrier: retrier{max: tt.max}, stop: tt.stop}
			fb := &fallbackFunc[int]{handles: func(policy.FailedCall) bool { return false }}
			for _, p := range []*policy.Pipeline{build(t, r), build(t, r, fb), build(t, r, policy.Timeouts{Total: 1 << 40})} {
				hop := policy.NewHop(1)
				_, _ = policy.Do(policy.WithHop(t.Context(), hop), p, tt.fn)
				assert.Equal(t, tt.want, hop.Spent())
				for _, h := range r.hops {
					assert.Same(t, hop, h)
				}
				r.hops = nil
			}
		})
	}
}

func TestHopStopReachesTheCaller(t *testing.T) {
	t.Parallel()
	p := build(t, &tight{retrier: retrier{max: 1}, stop: policy.StopHop})
	_, err := policy.Do(policy.WithHop(t.Context(), policy.NewHop(2)), p, fail)
	require.ErrorIs(t, err, errBoom)
	var gave *policy.GaveUpError
	require.ErrorAs(t, err, &gave)
	assert.Equal(t, policy.StopHop, gave.Stop)
	assert.EqualError(t, err, "stock: gave up after 1 attempt (hop): boom")
}

func TestHopCounts(t *testing.T) {
	t.Parallel()
	var none *policy.Hop
	assert.Equal(t, 1, none.Attempt())
	assert.False(t, none.IsRetry())
	assert.Equal(t, 3, none.Next(3))
	none.Spend()
	assert.False(t, none.Spent())

	assert.Equal(t, 1, policy.NewHop(-4).Attempt())
	h := policy.NewHop(2)
	assert.True(t, h.IsRetry())
	assert.Equal(t, 2, h.Next(1), "a first attempt under a retry is part of it")
	assert.Equal(t, 4, h.Next(3))
	assert.Equal(t, 2, h.Next(0))
	h.Spend()
	h.Spend()
	assert.True(t, h.Spent())

	assert.Nil(t, policy.HopFrom(t.Context()))
	assert.Same(t, h, policy.HopFrom(policy.WithCall(policy.WithHop(t.Context(), h), policy.Call{Key: "k"})), "a call of its own does not hide it")
}

func TestCallWatcherSeesTheContext(t *testing.T) {
	t.Parallel()
	l := &ledger{max: 2}
	p := build(t, l)
	calls := 0
	_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
		calls++
		assert.Same(t, l, ctx.Value(ledgerKey{}))
		return fail(ctx)
	})
	require.ErrorIs(t, err, errBoom)
	assert.Equal(t, 2, calls)
	assert.Equal(t, 1, l.spent)
	assert.EqualValues(t, 1, l.ended[policy.Failure])
}

func TestCallWatcherIsToldOfCallsThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(context.Context) (int, error){
		"panic":  func(context.Context) (int, error) { panic("x") },
		"goexit": func(context.Context) (int, error) { runtime.Goexit(); return 0, nil },
	} {
		for _, at := range []int{1, 2} {
			l := &ledger{max: 3}
			p := build(t, l)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				calls := 0
				_, _ = policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
					if calls++; calls < at {
						return fail(ctx)
					}
					return fn(ctx)
				})
			}()
			<-done
			assert.Equal(t, 1, l.began, name)
			assert.EqualValues(t, 1, l.ended[policy.NotRun], "%s at attempt %d", name, at)
			assert.Equal(t, at-1, l.spent, "%s at attempt %d", name, at)
		}
	}
}
