package ratelimit

import (
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// bucketLineModel is a pacer whose calls are let in when all of their tokens are there.
type bucketLineModel struct{ paceModel }

func (m *bucketLineModel) clone() modelBooks { c := *m; return &c }

func (m *bucketLineModel) tooBig(n int64) bool { return ratOf(n).Cmp(m.burst) > 0 }

func (m *bucketLineModel) fits(at, n int64) bool {
	return new(big.Rat).Add(m.usedAt(at), ratOf(n)).Cmp(m.arrived(at)) <= 0
}

// A bucket whose callers wait is a line of its own making, for which the same model holds.
// No wait is too long for it without a deadline, and who has been promised a time keeps
// that when the limit is lowered, so limits are not changed here.
func TestPropBucketLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := drawScript(rt)
		// What becomes free in front of a reservation, and is of no use to a waiter behind it, a
		// bucket lets newcomers have. The model does not, so a script has waiters or
		// reservations, and not both.
		instead := rapid.SampledFrom([]map[int]int{{9: 5, 6: 2, 7: 8}, {9: 7, 5: 6, 2: 6, 3: 6, 4: 7}}).Draw(rt, "instead")
		for i := range script {
			if op, ok := instead[script[i].op]; ok {
				script[i].op = op
			}
		}
		// Tokens that come at whole nanoseconds: the bucket takes a promise, and the
		// line a turn, for a moment within the last one.
		every := rapid.SampledFrom([]time.Duration{1, 2, 7, 20}).Draw(rt, "every")
		burst := rapid.IntRange(1, 5).Draw(rt, "burst")
		waiters := rapid.SampledFrom([]int{1, 3, 10}).Draw(rt, "waiters")
		k := lineKind{make: func(_ time.Duration, waiters int) (Limiter, func() int, modelBooks) {
			r := Every(every)
			b, err := New("", TokenBucket{Rate: r, Burst: burst, MaxWaiters: waiters})
			if err != nil {
				panic(err)
			}
			n := ratOf(int64(burst))
			unit := func() int64 { return b.state.Load().unit }
			m := paceModel{rate: r.perNano(), burst: n, used: new(big.Rat).Neg(n), units: unit}
			return b, func() int { return int(b.waiting.Load()) }, &bucketLineModel{m}
		}}
		var diff string
		synctest.Test(t, func(t *testing.T) { diff = runLine(t, k, time.Hour, waiters, script) })
		if diff != "" {
			rt.Fatal(diff)
		}
	})
}
