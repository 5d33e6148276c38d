package bulkhead

import "time"

// guard watches over a limit that is found at run time. The estimate behind that
// limit goes by trends of the latency: it takes its time (about one step a second),
// and it takes whatever it has seen for a while as normal. So the guard keeps what
// the estimate forgets, the latency that the dependency has without contention, and
// holds the limit down while calls are refused although that latency is far exceeded:
//
//   - A period in which nobody was refused shows the latency without contention: what
//     is known of it follows slowly. In one in which somebody was, it can only fall.
//   - While calls are refused and the latency is above tolerance times that, or the
//     dependency says that it is busy, every period lowers the cap: in proportion, by
//     a tenth at least and by half at most. Otherwise it rises again.
//   - A cap that has come down to the floor and has not helped means that the latency
//     is not of our making: with so few calls, what is seen is the latency without
//     contention. That is the new base, and the cap goes back to where it was.
//
// The last is what Envoy's adaptive concurrency filter does at fixed times (the
// minRTT window), done when there is reason to. A guard is not safe for concurrent
// use.
type guard struct {
	min, max  float64
	tolerance float64       // 0 never brakes
	base      time.Duration // latency without contention; 0 is unknown
	cap       float64
	before    float64 // the limit when braking began; 0 while not braking
}

// period is what was seen in a stretch of time, at least one call.
type period struct {
	mean    time.Duration // of the calls that show how fast the dependency is
	calls   int           // of these
	busy    int           // calls that the dependency refused as too many
	pressed bool          // somebody was refused, or had to wait
	limit   int           // by the estimate
}

const (
	brake     = 0.9  // lowers the cap, per period, at least by this
	brakeHard = 0.5  // and at most by this
	creep     = 1.05 // raises it while there is pressure
	ease      = 1.25 // and while there is none
	busyShare = 10   // one in so many calls
	follow    = 8    // base moves by one in so many parts
)

func newGuard(least, most int, tolerance float64) guard {
	return guard{min: float64(least), max: float64(most), tolerance: tolerance, cap: float64(most)}
}

// resize changes the bounds and keeps what is known: of a cap that does not hold down the
// limit nothing stays.
func (g *guard) resize(least, most int, tolerance float64) {
	free := g.cap >= g.max || tolerance == 0
	g.min, g.max, g.tolerance = float64(least), float64(most), tolerance
	if free {
		g.cap, g.before = g.max, 0
		return
	}
	g.cap = max(min(g.cap, g.max), g.min)
	g.before = min(g.before, g.max)
}

// limit returns the limit for the next period: the estimate, within bounds.
func (g *guard) limit(estimate int) int {
	return int(max(min(float64(estimate), g.cap, g.max), g.min))
}

// judge learns from a period, and reports whether it has found a new base.
func (g *guard) judge(p period) (rebased bool) {
	if g.tolerance == 0 {
		return false
	}
	known := g.base > 0 && p.calls > 0
	slow := known && float64(p.mean) > g.tolerance*float64(g.base)
	busy := p.busy*busyShare > p.calls+p.busy
	limit := g.limit(p.limit)
	if !p.pressed {
		if known {
			g.base += (p.mean - g.base) / follow
		} else if p.calls > 0 {
			g.base = p.mean
		}
	} else if p.calls > 0 && (g.base == 0 || p.mean < g.base) {
		g.base = p.mean
	}
	switch {
	case !busy && (!p.pressed || !slow):
		g.release(p.pressed)
	case float64(limit) > g.min:
		if g.before == 0 {
			g.before = float64(limit)
		}
		f := brake
		if slow { // by Little's law, the share of these calls that the dependency could serve in time
			f = max(min(g.tolerance*float64(g.base)/float64(p.mean), brake), brakeHard)
		}
		g.cap = max(float64(limit)*f, g.min)
	case slow && p.pressed && !busy:
		g.base = p.mean
		g.cap = max(g.before, g.min)
		g.before = 0
		return true
	}
	return false
}

// release raises the cap.
func (g *guard) release(pressed bool) {
	f := ease
	if pressed {
		f = creep
	}
	g.cap = min(g.cap*f+1, g.max)
	if g.cap >= g.before {
		g.before = 0
	}
}
