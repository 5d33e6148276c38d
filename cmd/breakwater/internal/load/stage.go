package load

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds on a load.
const (
	maxRate   = 1e6 // requests per second
	maxBurst  = 1_000_000
	maxFor    = 24 * time.Hour
	maxStages = 1000

	maxRequests = 1_000_000_000
)

// Stage is a part of a load: a burst, a rate that is constant or a ramp, or a pause.
type Stage struct {
	// Burst is the number of requests at one instant. With it there is nothing else.
	Burst int
	// From and To are the rates, in requests per second, at the beginning and at the end.
	// Both are 0 in a pause.
	From, To float64
	// For is how long the stage lasts, 0 in a burst.
	For time.Duration
}

// String returns the stage in the words of the command line.
func (s Stage) String() string {
	switch {
	case s.Burst > 0:
		return fmt.Sprintf("burst of %d", s.Burst)
	case s.From == 0 && s.To == 0:
		return "pause of " + s.For.String()
	case s.From == s.To:
		return fmt.Sprintf("%s/s for %v", number(s.From), s.For)
	default:
		return fmt.Sprintf("%s..%s/s for %v", number(s.From), number(s.To), s.For)
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// validate reports what is wrong with the stage.
func (s Stage) validate() error {
	switch {
	case s.Burst != 0:
		if s.Burst < 1 || s.Burst > maxBurst {
			return fmt.Errorf("burst: %d requests: want 1 to %d", s.Burst, maxBurst)
		}
		return nil
	case s.For <= 0:
		return fmt.Errorf("for: %v: want more than 0", s.For)
	case s.For > maxFor:
		return fmt.Errorf("for: %v: want at most %v", s.For, maxFor)
	case !(s.From >= 0 && s.From <= maxRate && s.To >= 0 && s.To <= maxRate):
		return fmt.Errorf("%s..%s requests per second: want 0 to %d", number(s.From), number(s.To), int(maxRate))
	case (s.From+s.To)/2*s.For.Seconds() > maxRequests:
		return fmt.Errorf("%v: want at most %d requests", s, maxRequests)
	}
	return nil
}

// requests returns how many requests are due in the stage, the first one at its beginning.
func (s Stage) requests() int {
	if s.Burst > 0 {
		return s.Burst
	}
	n := (s.From + s.To) / 2 * s.For.Seconds()
	// The one that would be due exactly at the end belongs to what follows.
	if r := math.Round(n); math.Abs(n-r) < 1e-6 {
		return int(r)
	}
	return int(math.Ceil(n))
}

// due returns when request k is due, from the beginning of the stage.
func (s Stage) due(k int) time.Duration {
	if s.Burst > 0 || k == 0 {
		return 0
	}
	// The integral of the rate, From*t + slope*t²/2, is k. Solved so that nothing cancels
	// out when the slope is small.
	slope := (s.To - s.From) / s.For.Seconds()
	root := math.Sqrt(max(s.From*s.From+2*slope*float64(k), 0))
	t := 2 * float64(k) / (s.From + root)
	return min(time.Duration(math.Round(t*float64(time.Second))), s.For-1)
}

// ParseRate reads a rate such as 20/s, 2.5/s, 600/m or 20, which is per second, and
// returns requests per second.
func ParseRate(text string) (float64, error) {
	amount, unit, _ := strings.Cut(strings.TrimSpace(text), "/")
	per, ok := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	v, err := strconv.ParseFloat(strings.TrimSpace(amount), 64)
	if !ok || err != nil || strings.HasSuffix(strings.TrimSpace(text), "/") {
		return 0, fmt.Errorf("%q is no rate: want one such as 20/s, 2.5/s or 600/m", text)
	}
	if v /= per; !(v > 0 && v <= maxRate) {
		return 0, fmt.Errorf("%q: want more than 0 and at most %d requests per second", text, int(maxRate))
	}
	return v, nil
}

// ParseRamp reads two rates such as 50..1000 or 50/s..1000/s. The first one may be 0, and
// the second one, too, but not both.
func ParseRamp(text string) (from, to float64, err error) {
	left, right, ok := strings.Cut(text, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no ramp: want one such as 50..1000", text)
	}
	// 1..2/m is a ramp per minute on both sides.
	if _, unit, ok := strings.Cut(right, "/"); ok && !strings.Contains(left, "/") {
		left += "/" + unit
	}
	for _, end := range []struct {
		text string
		rate *float64
	}{{left, &from}, {right, &to}} {
		amount, _, _ := strings.Cut(end.text, "/")
		if v, err := strconv.ParseFloat(strings.TrimSpace(amount), 64); err == nil && v == 0 {
			continue
		}
		if *end.rate, err = ParseRate(end.text); err != nil {
			return 0, 0, err
		}
	}
	if from == 0 && to == 0 {
		return 0, 0, fmt.Errorf("%q: want a rate above 0 at one end", text)
	}
	return from, to, nil
}

// Schedule is when requests are due: stages, one after the other.
type Schedule struct {
	stages []scheduled
	total  int
	length time.Duration
}

type scheduled struct {
	Stage

	first int           // number of the stage's first request
	n     int           // of requests
	start time.Duration // from the beginning of the load
}

// NewSchedule puts stages one after the other.
func NewSchedule(stages ...Stage) (*Schedule, error) {
	if len(stages) > maxStages {
		return nil, fmt.Errorf("%d stages: want at most %d", len(stages), maxStages)
	}
	s := new(Schedule)
	for i, stage := range stages {
		if err := stage.validate(); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i+1, err)
		}
		part := scheduled{Stage: stage, first: s.total, n: stage.requests(), start: s.length}
		s.stages = append(s.stages, part)
		if s.total += part.n; s.total > maxRequests {
			return nil, fmt.Errorf("stage %d: with it there are more than %d requests", i+1, maxRequests)
		}
		s.length += stage.For
	}
	switch {
	case s.total == 0:
		return nil, errors.New("there are no requests in this load")
	case s.length > maxFor:
		return nil, fmt.Errorf("the stages last %v: want at most %v", s.length, maxFor)
	}
	return s, nil
}

// Requests returns the number of all requests.
func (s *Schedule) Requests() int { return s.total }

// Length returns how long the load lasts.
func (s *Schedule) Length() time.Duration { return s.length }

// Burst returns the number of requests of the largest burst.
func (s *Schedule) Burst() int {
	most := 0
	for _, st := range s.stages {
		most = max(most, st.Burst)
	}
	return most
}

// Lasts reports whether a stage of the load takes time: whether there is a rate.
func (s *Schedule) Lasts() bool {
	for _, st := range s.stages {
		if st.Burst == 0 && st.n > 0 {
			return true
		}
	}
	return false
}

// String returns the stages in words.
func (s *Schedule) String() string {
	texts := make([]string, len(s.stages))
	for i, st := range s.stages {
		texts[i] = st.String()
	}
	if len(texts) > 6 {
		texts = append(texts[:5], fmt.Sprintf("and %d more stages", len(texts)-5))
	}
	return strings.Join(texts, ", ")
}

// due returns when request k is due, from the beginning of the load.
func (s *Schedule) due(k int) time.Duration {
	low, high := 0, len(s.stages)
	for low < high-1 {
		if mid := (low + high) / 2; s.stages[mid].first <= k {
			low = mid
		} else {
			high = mid
		}
	}
	return s.stages[low].start + s.stages[low].due(k-s.stages[low].first)
}

// dueBefore returns how many requests are due before t.
func (s *Schedule) dueBefore(t time.Duration) int {
	low, high := 0, s.total
	for low < high {
		if mid := (low + high) / 2; s.due(mid) < t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// rate returns the rate at t, in requests per second.
func (s *Schedule) rate(t time.Duration) float64 {
	for _, st := range s.stages {
		if at := t - st.start; st.Burst == 0 && at >= 0 && at < st.For {
			return st.From + (st.To-st.From)*at.Seconds()/st.For.Seconds()
		}
	}
	return 0
}
