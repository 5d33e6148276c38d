//go:build !race

package bulkhead_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestAllocAdmitted(t *testing.T) {
	p := newPermits(t, bulkhead.Semaphore{Limit: 10})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if p.TryAcquire() {
			p.Release()
		}
		if p.Acquire(ctx) == nil {
			p.Release()
		}
	}))
}

func TestAllocRefused(t *testing.T) {
	p := newPermits(t, bulkhead.Semaphore{Limit: 1})
	require.True(t, p.TryAcquire())
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if p.TryAcquire() {
			t.Error("admitted")
		}
	}), "TryAcquire makes no error")
	assert.Equal(t, 1.0, testing.AllocsPerRun(1000, func() {
		if p.Acquire(t.Context()) == nil {
			t.Error("admitted")
		}
	}), "the refusal")
}

func TestAllocPipeline(t *testing.T) {
	p := newPipeline(t, bulkhead.Semaphore{Limit: 10})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}))
}
