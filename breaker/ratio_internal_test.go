package breaker

import (
	"math"
	"math/big"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestRatioIsExact(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ratio       float64
		part, whole uint64
		want        bool
	}{
		{0.5, 10, 20, true},
		{0.5, 9, 20, false},
		{0.5, 495, 1000, false}, // 0.495 is not 0.5
		{0.001, 4, 1000, true},  // 0.4 % is above 0.1 %
		{0.001, 1, 1000, true},  // exactly 0.1 %
		{0.001, 1, 1001, false}, // just below
		{0.1, 1, 10, true},      // the binary 0.1 is above one tenth
		{0.7, 7, 10, true},      // the binary 0.7 is below seven tenths
		{0.3, 3, 10, true},      //
		{0.3, 299_999, 999_999, false},
		{1, 20, 20, true},
		{1, 19, 20, false},
		{1.0 / 3, 1, 3, true},
		{2.0 / 3, 2, 3, true},
		{0.25, 3, 10, true},
		{0.25, 2, 10, false},
		{1, math.MaxUint64, math.MaxUint64, true},
		{1, math.MaxUint64 - 1, math.MaxUint64, false},
		{0.5, 1 << 63, math.MaxUint64, true},
		{1e-300, 1, math.MaxUint64 / 2, true}, // any failure is too many
		{1e-300, 0, 1, false},
		{5e-324, 1, 1, true},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, newRatio(tt.ratio).reached(tt.part, tt.whole), "%v: %d of %d", tt.ratio, tt.part, tt.whole)
	}
	assert.False(t, ratio{}.reached(1, 1), "a rule that is off")
}

// For every threshold that fits, the comparison is that of exact fractions.
func TestRatioEqualsExactFractions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := rapid.Float64Range(1e-3, 1).Draw(rt, "ratio")
		if rapid.Bool().Draw(rt, "rounded") {
			f = math.Round(f*1000) / 1000
		}
		whole := rapid.Uint64Range(1, math.MaxUint64).Draw(rt, "whole")
		part := rapid.Uint64Range(0, whole).Draw(rt, "part")
		if rapid.Bool().Draw(rt, "near") { // as near to the threshold as whole numbers come
			near, _ := new(big.Float).Mul(big.NewFloat(f), new(big.Float).SetUint64(whole)).Uint64()
			part = min(near+rapid.Uint64Range(0, 1).Draw(rt, "up"), whole)
		}
		limit, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
		got := new(big.Rat).SetFrac(new(big.Int).SetUint64(part), new(big.Int).SetUint64(whole))
		if want := got.Cmp(limit) >= 0; newRatio(f).reached(part, whole) != want {
			rt.Fatalf("%v: %d of %d: want %v", f, part, whole, want)
		}
	})
}
