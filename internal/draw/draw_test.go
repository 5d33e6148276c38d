package draw_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/internal/draw"
)

func several() []any {
	return []any{draw.Uint64(), draw.Uint64N(1000), draw.Float64(), draw.Uint64()}
}

func TestSeedRepeats(t *testing.T) {
	stop := draw.Seed(7)
	first := several()
	stop()
	free := several()
	stop = draw.Seed(7)
	again := several()
	stop()
	other := draw.Seed(8)
	defer other()
	stop() // a second time, when the source is another's
	assert.Equal(t, first, again)
	assert.NotEqual(t, first, free)
	assert.NotEqual(t, first, several())
}

func TestDrawsAreInRange(t *testing.T) {
	for _, seed := range []bool{false, true} {
		if seed {
			defer draw.Seed(1)()
		}
		low, high := 1.0, 0.0
		for range 1000 {
			assert.Less(t, draw.Uint64N(3), uint64(3))
			v := draw.Float64()
			low, high = min(low, v), max(high, v)
		}
		assert.True(t, low >= 0 && low < 0.1 && high > 0.9 && high < 1, "%v to %v", low, high)
	}
}

func TestDrawConcurrentSafe(*testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				several()
				draw.Seed(1)()
			}
		})
	}
	wg.Wait()
}
