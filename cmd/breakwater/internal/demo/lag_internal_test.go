package demo

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStalls(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		late []time.Duration
		want Stalls
	}{
		{"nothing was late", []time.Duration{0, 0}, Stalls{}},
		{"nothing was measured", nil, Stalls{}},
		{"short ones are not added up", []time.Duration{24 * ms, 24 * ms, 1500 * time.Microsecond}, Stalls{Longest: 24}},
		{"below both bounds", []time.Duration{149 * ms, 25 * ms, 24 * ms, 25 * ms}, Stalls{Longest: 149, Sum: 199}},
		{"a long one", []time.Duration{150 * ms}, Stalls{Longest: 150, Sum: 150, Large: true}},
		{"many", []time.Duration{140 * ms, 140 * ms, 20 * ms, 20 * ms}, Stalls{Longest: 140, Sum: 280, Large: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l lag
			for _, d := range tt.late {
				l.add(d)
			}
			assert.Equal(t, tt.want, l.stalls(2800*time.Millisecond))
		})
	}
}

// In a bubble time stands still while anything runs, so nothing is ever late: each
// sleep is measured for itself and not against the beginning.
func TestLagIsThatOfEachSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lag
		var watcher sync.WaitGroup
		done := make(chan struct{})
		watcher.Go(func() { l.watch(done) })
		time.Sleep(time.Hour + lagEvery/2)
		close(done)
		watcher.Wait()
		assert.Equal(t, Stalls{}, l.stalls(time.Hour))
	})
}
