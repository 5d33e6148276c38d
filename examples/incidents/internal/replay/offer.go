package replay

import (
	"sync"
	"time"
)

// Traffic is requests at an even spacing.
type Traffic struct {
	Every  time.Duration
	From   time.Duration // when the first one comes
	Length time.Duration // none comes at or after From + Length
}

// PerSecond is a rate as a spacing.
func PerSecond(n int) time.Duration { return time.Second / time.Duration(n) }

// Offer sends the requests, each on a goroutine of its own, and returns when all have
// ended. It tells each its number. Number i is i nanoseconds late, so that no two requests
// meet, also when one of them waits for a time that is a multiple of the spacing.
func (t Traffic) Offer(request func(i int)) {
	start := time.Now()
	var wg sync.WaitGroup
	for i := 0; ; i++ {
		at := time.Duration(i) * t.Every
		if at >= t.Length {
			break
		}
		time.Sleep(time.Until(start.Add(t.From + at + time.Duration(i))))
		wg.Go(func() { request(i) })
	}
	wg.Wait()
}

// Together calls functions side by side and returns when all have ended.
func Together(fns ...func()) {
	var wg sync.WaitGroup
	for _, fn := range fns {
		wg.Go(fn)
	}
	wg.Wait()
}
