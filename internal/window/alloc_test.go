//go:build !race

package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/internal/window"
)

func TestAllocNothing(t *testing.T) {
	w := window.New(base, time.Second, 10)
	now, limit := base, uint64(100)
	l := window.NewLast(100)
	ops := map[string]func(){
		"Add":           func() { w.Add(now, 1) },
		"Record":        func() { w.Record(now, failed) },
		"Amend":         func() { w.Amend(now) },
		"TryAddFailure": func() { w.TryAddFailure(now, func(c counts) bool { return c.Calls > limit }) },
		"Counts":        func() { w.Counts(now) },
		"Last.Add":      func() { l.Add(now, 1) },
		"Last.Record":   func() { l.Record(now, failed) },
		"Stripe":        func() { window.Stripe() },
	}
	for name, op := range ops {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			now = now.Add(7 * time.Millisecond)
			op()
		}), name)
	}
}
