package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

type attachment struct{ name string }

func (s attachment) Snapshot(time.Time) policy.PolicySnapshot {
	return policy.PolicySnapshot{Name: s.name, Kind: "connections", Bulkhead: &policy.BulkheadSnapshot{Limit: 7}}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	var events []policy.Event
	p, err := policy.New("db", policy.Timeouts{Attempt: time.Second},
		policy.Observe(policy.ObserverFunc(func(e policy.Event) { events = append(events, e) })))
	require.NoError(t, err)
	at, err := p.Attach(attachment{"connections"})
	require.NoError(t, err)
	list := p.Snapshot().Policies
	require.Len(t, list, 2)
	require.Equal(t, "connections", list[1].Name)
	require.Equal(t, 7, list[1].Bulkhead.Limit)

	// Its name is taken, now and for later updates.
	for _, name := range []string{"connections", "timeout", ""} {
		_, err = p.Attach(attachment{name})
		var ce *policy.ConfigError
		require.ErrorAs(t, err, &ce, "%q", name)
	}
	_, err = p.Prepare(policy.Timeouts{Name: "connections"})
	require.ErrorContains(t, err, "db.connections")
	u, err := p.Prepare(policy.Timeouts{Attempt: time.Minute})
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	require.Len(t, p.Snapshot().Policies, 2, "an update leaves it")

	re := &policy.RejectedError{Reason: policy.ReasonWait}
	_, err = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
		at.Reject(re, a)
		return 0, re
	}, nil)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.Equal(t, "db", re.Dependency)
	require.Equal(t, "connections", re.Policy)
	require.Len(t, events, 1)
	require.Equal(t, policy.EventRejected, events[0].Kind)
	require.Equal(t, 1, events[0].Attempt)

	at.Detach()
	at.Detach()
	require.Len(t, p.Snapshot().Policies, 1)
	_, err = p.Attach(attachment{"connections"})
	require.NoError(t, err, "the name is free again")
}

func TestAttachNothing(t *testing.T) {
	t.Parallel()
	var p *policy.Pipeline
	at, err := p.Attach(attachment{"connections"})
	require.NoError(t, err)
	re := &policy.RejectedError{Reason: policy.ReasonWait}
	at.Reject(re, nil)
	require.Equal(t, "connections", re.Policy)
	at.Detach()
}

// The caller's own time in the middle of an attempt is not the dependency's.
func TestPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("db")
		require.NoError(t, err)
		_, err = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			time.Sleep(10 * time.Second)
			a.Paused(9 * time.Second)
			a.Paused(-time.Hour)
			return 0, nil
		}, nil)
		require.NoError(t, err)
		s := p.Snapshot()
		require.Equal(t, time.Second, s.Latency.Sum)
		require.Equal(t, 10*time.Second, s.CallLatency.Sum, "the caller's wait is what it was")
	})
}
