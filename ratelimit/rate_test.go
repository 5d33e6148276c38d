package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestRateString(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate ratelimit.Rate
		want string
	}{
		{ratelimit.Rate{}, "unset"},
		{ratelimit.PerSecond(6000), "6000/s"},
		{ratelimit.PerSecond(2_000_000), "2000000/s"},
		{ratelimit.PerSecond(0.2), "0.2/s"},
		{ratelimit.PerSecond(1e-11), "1e-11/s"},
		{ratelimit.PerSecond(1e18), "1e+18/s"},
		{ratelimit.PerSecond(math.Inf(1)), "+Inf/s"},
		{ratelimit.PerSecond(math.NaN()), "NaN/s"},
		{ratelimit.PerMinute(6), "6/1m0s"},
		{ratelimit.Per(6, 90*time.Second), "6/1m30s"},
		{ratelimit.Every(10 * time.Second), "1/10s"},
	} {
		assert.Equal(t, tt.want, tt.rate.String())
	}
}
