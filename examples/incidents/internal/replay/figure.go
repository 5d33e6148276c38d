package replay

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Figure is a measured value and what it should be. The zero Figure is none.
type Figure struct {
	text, want string
	value      value
	low, high  float64 // what it may be
	slack      float64 // how much more on real time, in units of the value, beside a tenth
	exact      bool    // no more on real time either
	out        bool
}

// String returns the value, or a dash.
func (f Figure) String() string {
	if f.text == "" {
		return "-"
	}
	return f.text
}

// value is a number as JSON shows it: durations are in seconds, and none is null.
type value struct {
	is bool
	x  float64
}

// MarshalJSON implements [json.Marshaler].
func (v value) MarshalJSON() ([]byte, error) {
	if !v.is {
		return []byte("null"), nil
	}
	return json.Marshal(v.x)
}

// Number is what can be a figure.
type Number interface {
	~int | ~int64 | ~float64
}

// None is no figure, where one of the two runs has none.
var None Figure

// Seen is a figure of which nothing is expected.
func Seen[T Number](v T) Figure {
	x := float64(v)
	if d, ok := any(v).(time.Duration); ok {
		x = d.Seconds()
	}
	return Figure{text: show(v), value: value{true, x}}
}

// Is is a figure that has to be exactly want.
func Is[T Number](v, want T) Figure { return within(v, show(want), want, want) }

// Exactly is Is for what no clock has a part in, so that it has no tolerance on real time either.
func Exactly[T Number](v, want T) Figure {
	f := Is(v, want)
	f.exact = true
	return f
}

// Near is a figure that has to be within a tolerance of want.
func Near[T Number](v, want, tolerance T) Figure {
	return within(v, show(want)+" +/- "+show(tolerance), want-tolerance, want+tolerance)
}

// AtMost is a figure that must not be above most.
func AtMost[T Number](v, most T) Figure {
	f := within(v, "<= "+show(most), min(v, most), most)
	f.low = math.Inf(-1)
	return f
}

// AtLeast is a figure that must not be below least.
func AtLeast[T Number](v, least T) Figure {
	f := within(v, ">= "+show(least), least, max(v, least))
	f.high = math.Inf(1)
	return f
}

// Between is a figure that must lie between two others, or be one of them.
func Between[T Number](v, low, high T) Figure {
	return within(v, show(low)+" to "+show(high), low, high)
}

// Says is a figure in words that has to be exactly want.
func Says(v, want string) Figure {
	return Figure{text: v, want: want, out: v != want}
}

func within[T Number](v T, want string, low, high T) Figure {
	f := Seen(v)
	inside := v >= low && v <= high // NaN is not
	f.want, f.out = want, !inside
	f.low, f.high, f.slack = float64(low), float64(high), 2
	switch any(v).(type) {
	case time.Duration:
		f.low, f.high, f.slack = f.low/float64(time.Second), f.high/float64(time.Second), 0.1
	case float64:
		f.slack = 0.3 // ratios and percentages
	}
	return f
}

// loosen returns the figure with the tolerance of real time.
func (f Figure) loosen() Figure {
	if !f.value.is || f.want == "" || f.exact {
		return f
	}
	const tenth = 0.1
	inside := f.value.x >= f.low-f.slack-tenth*math.Abs(f.low) && f.value.x <= f.high+f.slack+tenth*math.Abs(f.high)
	f.out = !inside
	return f
}

// show formats numbers for people: 33,000, 1.08, 2.05s.
func show[T Number](v T) string {
	if d, ok := any(v).(time.Duration); ok {
		return showDuration(d)
	}
	x := float64(v)
	if math.Abs(x) >= 1000 {
		x = math.Round(x)
	}
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return thousands(int64(x))
	}
	return fmt.Sprintf("%.3g", x)
}

// showDuration rounds to a thousandth, or to a microsecond.
func showDuration(d time.Duration) string {
	step := time.Microsecond
	for _, s := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		if d.Abs() >= 1000*s {
			step = s
		}
	}
	return d.Round(step).String()
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := 1
	if n < 0 {
		from = 2
	}
	for i := len(s) - 3; i >= from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
