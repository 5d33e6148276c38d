package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// foreign is a limiter of another package.
type foreign struct{ ratelimit.Outside }

func (foreign) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "foreign", Gate: foreign{}}, nil
}
func (foreign) Peek(*policy.Attempt) error                              { return nil }
func (foreign) Enter(context.Context, *policy.Attempt, int) error       { return nil }
func (foreign) Leave(*policy.Attempt, int, policy.Outcome)              {}
func (foreign) Snapshot(time.Time) policy.PolicySnapshot                { return policy.PolicySnapshot{} }
func (foreign) Take(time.Time, int) (retryAfter time.Duration, ok bool) { return 0, true }
func (foreign) Wait(context.Context, int) error                         { return nil }
func (foreign) Reserve(time.Time, int) ratelimit.Reservation            { return ratelimit.Granted(true, 0) }
func (foreign) Refund(time.Time, int)                                   {}
func (foreign) SetRate(ratelimit.Rate) error                            { return nil }

var _ ratelimit.Limiter = foreign{}

func TestAllRefusesALimiterFromOutside(t *testing.T) {
	t.Parallel()
	err := ratelimit.All{Limits: []policy.Policy{foreign{}}}.Validate()
	require.ErrorContains(t, err, "want a limiter of package ratelimit, and not one of kind foreign")
}

func TestGranted(t *testing.T) {
	t.Parallel()
	r := ratelimit.Granted(true, time.Second)
	assert.True(t, r.OK())
	assert.Zero(t, r.Delay())
	r = ratelimit.Granted(false, time.Second)
	assert.False(t, r.OK())
	assert.Equal(t, time.Second, r.Delay())
	r.Cancel(time.Now()) // does nothing
}
