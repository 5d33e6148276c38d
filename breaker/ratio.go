package breaker

import (
	"math/bits"
	"strconv"
	"strings"
)

// ratio is a threshold as the fraction that its author wrote: 0.1 is one tenth, not
// the binary number next to it, which is larger and would not be reached by one call
// of ten. The zero ratio is never reached.
type ratio struct{ num, den uint64 }

// newRatio returns the ratio for f in (0, 1], read from its shortest decimal form.
func newRatio(f float64) ratio {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	digits := strings.Replace(mantissa, ".", "", 1)
	num, _ := strconv.ParseUint(digits, 10, 64) // at most 17 digits
	exp, _ := strconv.Atoi(exponent)
	places := len(digits) - 1 - exp
	for ; places > 19; places-- { // 10^19 is the largest power that fits
		num /= 10
	}
	r := ratio{num: max(num, 1), den: 1}
	for range places {
		r.den *= 10
	}
	return r
}

// reached reports whether part of whole is at least the ratio, exactly.
func (r ratio) reached(part, whole uint64) bool {
	if r.den == 0 {
		return false
	}
	ph, pl := bits.Mul64(part, r.den)
	wh, wl := bits.Mul64(whole, r.num)
	return ph > wh || ph == wh && pl >= wl
}
