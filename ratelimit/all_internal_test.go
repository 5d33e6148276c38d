package ratelimit

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// runAllModel runs the same random operations on a bundle and on a model of each of its
// limits. A call must be let in exactly when every model lets it in, and else change
// none.
func runAllModel(t require.TestingT, o ops, steps int) {
	type layer struct {
		bucket *Bucket
		model  *counterModel
	}
	var layers []layer
	var limits []policy.Policy
	for i := range 1 + o.intn("limits", 4) {
		rate, burst := chooseRate(o), chooseBurst(o)
		b, err := New(string(rune('a'+i)), TokenBucket{Rate: rate, Burst: int(burst)})
		require.NoError(t, err)
		layers = append(layers, layer{b, newCounterModel(rate, burst, burst)})
		limits = append(limits, b)
	}
	b, err := NewAll("", All{Limits: limits})
	require.NoError(t, err)
	// One origin of time for all, so that a time is the same in each.
	for _, l := range layers {
		l.bucket.start = b.start
	}
	at := int64(0)
	for range steps {
		at = min(at+max(0, chooseStep(o)), 1<<62)
		now := b.start.Add(time.Duration(at))
		for _, l := range layers {
			if s := l.bucket.state.Load(); s.elapsed(at) > s.horizon {
				l.bucket.move(s, at)
				l.model.move(at)
			}
		}
		n := 1 + o.intn("n", 11)
		c := &policy.Call{Cost: n}
		if o.intn("op", 5) == 0 {
			b.RefundFor(b.start.Add(1<<62), c) // so that nothing has arrived since
			for _, l := range layers {
				l.model.refund(int64(n))
			}
			continue
		}
		want, longest := true, time.Duration(0)
		for _, l := range layers {
			wait, ok := l.model.clone().take(at, int64(n))
			want, longest = want && ok, max(longest, wait)
		}
		wait, ok := b.TakeFor(now, c)
		require.Equal(t, want, ok, "take %d at %d", n, at)
		require.Equal(t, longest, wait, "take %d at %d", n, at)
		for _, l := range layers {
			if want {
				_, ok := l.model.take(at, int64(n))
				require.True(t, ok)
			}
			_, free := l.bucket.free(at)
			tokens, _ := l.model.tokens(at).Float64()
			require.InEpsilon(t, 1+tokens, 1+float64(free)/float64(l.bucket.state.Load().unit), 1e-9)
		}
	}
}

func TestPropAllModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runAllModel(t, rapidOps{t}, 40) })
}

func FuzzAllModel(f *testing.F) {
	for seed := range 8 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 120, 17, byte(31 * seed), 5, 6}, 30))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runAllModel(t, &byteOps{data}, min(len(data), 100))
	})
}
