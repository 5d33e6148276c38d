package replay

import (
	"sync"
	"time"
)

// Gauge counts what there is at a time, and remembers the most there was in each second.
type Gauge struct {
	start time.Time

	mu    sync.Mutex
	n     int
	most  []int // in each second; the last may lie behind
	peak  int
	first map[int]time.Duration // when it came to so many
}

// NewGauge returns a gauge that begins now.
func NewGauge() *Gauge { return &Gauge{start: time.Now(), first: map[int]time.Duration{}} }

// Add changes the count.
func (g *Gauge) Add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.upTo(time.Since(g.start))
	g.n += n
	last := len(g.most) - 1
	g.most[last] = max(g.most[last], g.n)
	g.peak = max(g.peak, g.n)
	if _, seen := g.first[g.n]; !seen {
		g.first[g.n] = time.Since(g.start)
	}
}

// Set sets the count.
func (g *Gauge) Set(n int) {
	g.mu.Lock()
	by := n - g.n
	g.mu.Unlock()
	g.Add(by)
}

// upTo fills the seconds since the last change with what there was.
func (g *Gauge) upTo(now time.Duration) {
	for len(g.most) <= int(now/time.Second) {
		g.most = append(g.most, g.n)
	}
}

// Peak returns the most that there was.
func (g *Gauge) Peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peak
}

// Reached returns when there were n for the first time; ok is false if there never were.
func (g *Gauge) Reached(n int) (at time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok = g.first[n]
	return at, ok
}

// Line is the most in each second.
func (g *Gauge) Line(name string, seconds int) Line {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := Line{Name: name, Y: make([]float64, seconds)}
	for s := range seconds {
		n := g.n
		if s < len(g.most) {
			n = g.most[s]
		}
		line.Y[s] = float64(n)
	}
	return line
}
