package stale_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

// Whatever happens, callers get the value and the age that an obvious model has, and none
// that is older than it may be.
func TestCacheProperty(t *testing.T) {
	t.Parallel()
	type step struct {
		Sleep time.Duration
		Fails bool
		Gone  bool
	}
	type seen struct {
		Value    int
		Age      time.Duration
		Degraded bool
		Err      bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		fresh := time.Duration(rapid.IntRange(1, 20).Draw(rt, "fresh")) * time.Second
		maxAge := fresh + time.Duration(rapid.IntRange(0, 40).Draw(rt, "more"))*time.Second
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				time.Duration(rapid.IntRange(0, 15_000).Draw(rt, "sleep")) * time.Millisecond,
				rapid.Bool().Draw(rt, "fails"), rapid.IntRange(0, 5).Draw(rt, "gone") == 0,
			}
		}), 1, 40).Draw(rt, "steps")

		var got, want []seen
		synctest.Test(t, func(t *testing.T) {
			c, err := stale.New(nil, stale.Config[int]{Fresh: fresh, MaxAge: maxAge, Jitter: -1, Wait: -1, RetryIn: -1, NegativeFor: -1})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(context.Background())) }() //nolint:usetesting // that of the test has ended
			value, loadedAt := 0, time.Time{}
			for i, s := range steps {
				time.Sleep(s.Sleep)
				r, err := c.GetResult(t.Context(), "key", func(context.Context) (int, error) {
					switch {
					case s.Gone:
						return 0, policy.AsPermanent(errNotFound)
					case s.Fails:
						return 0, errDown
					}
					return i + 1, nil
				})
				got = append(got, seen{r.Value, r.Age, r.Degraded, err != nil})

				age := time.Since(loadedAt)
				switch {
				case value != 0 && age < fresh:
					want = append(want, seen{value, age, false, false})
				case s.Gone:
					value = 0
					want = append(want, seen{Err: true})
				case !s.Fails:
					value, loadedAt = i+1, time.Now()
					want = append(want, seen{Value: value})
				case value != 0 && age <= maxAge:
					want = append(want, seen{value, age, true, false})
				default:
					want = append(want, seen{Err: true})
				}
			}
		})
		require.Equal(rt, want, got)
		for _, s := range got {
			require.LessOrEqual(rt, s.Age, maxAge)
		}
	})
}
