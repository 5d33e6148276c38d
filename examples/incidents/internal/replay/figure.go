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
func Is[T Number](v, want T) Figure {
	return expect(v, show(want), v == want)
}

// Near is a figure that has to be within a tolerance of want.
func Near[T Number](v, want, tolerance T) Figure {
	return expect(v, show(want)+" +/- "+show(tolerance), v >= want-tolerance && v <= want+tolerance)
}

// AtMost is a figure that must not be above most.
func AtMost[T Number](v, most T) Figure {
	return expect(v, "<= "+show(most), v <= most)
}

// AtLeast is a figure that must not be below least.
func AtLeast[T Number](v, least T) Figure {
	return expect(v, ">= "+show(least), v >= least)
}

// Between is a figure that must lie between two others, or be one of them.
func Between[T Number](v, low, high T) Figure {
	return expect(v, show(low)+" to "+show(high), v >= low && v <= high)
}

// Says is a figure in words that has to be exactly want.
func Says(v, want string) Figure {
	return Figure{text: v, want: want, out: v != want}
}

func expect[T Number](v T, want string, ok bool) Figure {
	f := Seen(v)
	f.want, f.out = want, !ok
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
