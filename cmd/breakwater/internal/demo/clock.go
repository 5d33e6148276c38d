package demo

import (
	"sync/atomic"
	"time"
)

// clock tells the time since the start of the script. Before start it stands at 0.
type clock struct {
	origin atomic.Pointer[time.Time]
}

func (c *clock) start(t time.Time) { c.origin.Store(&t) }

// at returns the place of t in the script.
func (c *clock) at(t time.Time) time.Duration {
	o := c.origin.Load()
	if o == nil {
		return 0
	}
	return t.Sub(*o)
}

func (c *clock) now() time.Duration { return c.at(time.Now()) }
