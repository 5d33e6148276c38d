package ratelimit_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// call is one that was let in, and ran.
type call struct {
	at time.Duration
	n  int
}

// bound is how many tokens calls may take in any stretch of time t, of which the last
// call took a number.
type bound func(l limit, t time.Duration, last int) float64

// inTime is what arrives at the rate. A moment that was promised is rounded up to a
// nanosecond, so there may be one more.
func inTime(l limit, t time.Duration) float64 {
	return float64(l.tokens) * float64(t+1) / float64(l.per)
}

var bounds = map[string]bound{
	// A call is let in when one token is there, so the last one may take more.
	"pacer":                func(l limit, t time.Duration, last int) float64 { return inTime(l, t) + float64(last) },
	"warm-up":              func(l limit, t time.Duration, last int) float64 { return inTime(l, t) + float64(last) },
	"pacer with a burst":   func(l limit, t time.Duration, last int) float64 { return inTime(l, t) + float64(l.tokens+last-1) },
	"warm-up with a burst": func(l limit, t time.Duration, last int) float64 { return inTime(l, t) + float64(l.tokens+last-1) },
	// A stretch as long as m windows lies in m+1 of them, or m+2 if it is longer.
	"fixed window": func(l limit, t time.Duration, _ int) float64 {
		return float64(l.tokens) * float64((t+l.per-1)/l.per+1)
	},
	// A stretch shorter than m windows has m times the limit.
	"sliding log":     func(l limit, t time.Duration, _ int) float64 { return float64(l.tokens) * float64(t/l.per+1) },
	"sliding counter": func(l limit, t time.Duration, _ int) float64 { return inTime(l, t) + float64(l.tokens) },
	"lane":            func(l limit, t time.Duration, _ int) float64 { return inTime(l, t) + float64(l.tokens) },
	"token bucket":    func(l limit, t time.Duration, _ int) float64 { return inTime(l, t) + float64(l.tokens) },
	"keyed":           func(l limit, t time.Duration, _ int) float64 { return inTime(l, t) + float64(l.tokens) },
	"feedback":        func(l limit, t time.Duration, _ int) float64 { return inTime(l, t) + float64(l.tokens) },
	"all": func(l limit, t time.Duration, _ int) float64 {
		return min(inTime(l, t)+float64(l.tokens), float64(l.tokens)*float64(t/l.per+1))
	},
}

// allowing is a limiter with the methods that some have beside.
type allowing struct{ ratelimit.Limiter }

func (a allowing) Allow() bool { return a.AllowN(1) }

func (a allowing) AllowN(n int) bool {
	_, ok := a.Take(time.Now(), n)
	return ok
}

// bundled is an All whose rate is that of one of its limits.
type bundled struct {
	allowing

	bucket *ratelimit.Bucket
}

func (b bundled) SetRate(rate ratelimit.Rate) error { return b.bucket.SetRate(rate) }

// boundKinds are the kinds, and those that need not agree with them in all else.
var boundKinds = append(slices.Clone(kinds),
	kind{"token bucket", allOf, func(l limit) (byHand, error) {
		return ratelimit.New("", ratelimit.TokenBucket{Rate: rateOf(l), Burst: l.tokens, MaxWaiters: l.waiters})
	}},
	kind{"keyed", allOf, func(l limit) (byHand, error) {
		b, err := ratelimit.NewKeyed("", ratelimit.Keyed{Rate: rateOf(l), Burst: l.tokens, MaxWait: l.wait, MaxWaiters: l.waiters, MaxKeys: 1, TTL: l.per})
		if err != nil {
			return nil, err
		}
		return allowing{b.For("a")}, nil
	}},
	kind{"feedback", allOf, func(l limit) (byHand, error) {
		g, err := ratelimit.NewFeedback("", ratelimit.Feedback{Ceiling: rateOf(l), Burst: l.tokens, MaxWait: l.wait, MaxWaiters: l.waiters})
		return allowing{g}, err
	}},
	kind{"all", allOf, func(l limit) (byHand, error) {
		bucket, err := ratelimit.New("bucket", ratelimit.TokenBucket{Rate: rateOf(l), Burst: l.tokens})
		if err != nil {
			return nil, err
		}
		b, err := ratelimit.NewAll("", ratelimit.All{
			Limits:  []policy.Policy{bucket, ratelimit.SlidingWindow{Limit: l.tokens, Window: l.per}},
			MaxWait: l.wait, MaxWaiters: l.waiters,
		})
		return bundled{allowing{b}, bucket}, err
	}},
)

// Over any stretch of time, of whatever calls: those that come and go, wait, give up,
// reserve, and turn out not to run; also while the rate is lowered and raised again.
func TestPropKindsBound(t *testing.T) {
	t.Parallel()
	type op struct {
		step            time.Duration
		n, kind, refund int
		after           time.Duration
	}
	for _, k := range boundKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				conf := limit{
					tokens:  rapid.IntRange(2, 6).Draw(rt, "tokens"),
					per:     rapid.SampledFrom([]time.Duration{7, 10, 1000, time.Second}).Draw(rt, "per"),
					waiters: 5, coldFactor: 2,
				}
				conf.wait = 3 * conf.per
				script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) op {
					return op{
						step:   time.Duration(rapid.Int64Range(0, int64(conf.per)).Draw(rt, "step")) / time.Duration(rapid.SampledFrom([]int64{1, 3, 20}).Draw(rt, "part")),
						n:      rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(rt, "n"),
						kind:   rapid.IntRange(0, 6).Draw(rt, "kind"),
						refund: rapid.IntRange(0, 3).Draw(rt, "refund"),
						after:  time.Duration(rapid.Int64Range(0, 2*int64(conf.per)).Draw(rt, "after")),
					}
				}), 10, 80).Draw(rt, "script")
				var ran []call
				synctest.Test(t, func(t *testing.T) {
					l := trial{t, k}.new(conf)
					start := time.Now()
					var mu sync.Mutex
					var wg sync.WaitGroup
					// run is a call that was let in at a time. Every fourth does not
					// run, as turns out a while later.
					run := func(o op, at time.Time) {
						if o.refund == 0 {
							time.Sleep(o.after)
							l.(interface{ Refund(time.Time, int) }).Refund(at, o.n)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						ran = append(ran, call{at.Sub(start), o.n})
					}
					for _, o := range script {
						time.Sleep(o.step)
						wg.Go(func() {
							now := time.Now()
							switch o.kind {
							case 6:
								rate := rateOf(conf)
								rate.Tokens /= float64(o.n)
								assert.NoError(t, l.SetRate(rate))
							case 0, 1:
								if _, ok := l.Take(now, o.n); ok {
									run(o, now)
								}
							case 2:
								r := l.Reserve(now, o.n)
								if !r.OK() {
									return
								}
								if o.after < r.Delay() && o.after%2 == 0 {
									time.Sleep(o.after)
									r.Cancel(time.Now())
									return
								}
								time.Sleep(r.Delay())
								run(o, now.Add(r.Delay()))
							default:
								ctx, cancel := context.WithCancel(t.Context())
								defer cancel()
								if o.kind == 3 {
									ctx, cancel = context.WithTimeout(ctx, o.after)
									defer cancel()
								}
								if l.Wait(ctx, o.n) == nil {
									run(o, time.Now())
								}
							}
						})
						synctest.Wait()
					}
					wg.Wait()
				})
				slices.SortStableFunc(ran, func(a, b call) int { return int(a.at - b.at) })
				for i := range ran {
					tokens := 0
					for j := i; j < len(ran); j++ {
						tokens += ran[j].n
						length := ran[j].at - ran[i].at
						// Of those at one instant it is not known which was last.
						last := ran[j].n
						for m := j; m >= i && ran[m].at == ran[j].at; m-- {
							last = max(last, ran[m].n)
						}
						require.LessOrEqual(rt, float64(tokens), bounds[k.name](conf, length, last)+1e-9, "%d tokens of calls %d to %d of %v, %+v", tokens, i, j, ran, conf)
					}
				}
			})
		})
	}
}

// The same of calls that go through a pipeline, where a gate behind the limiter refuses
// some of them after a while.
func TestPropKindsGateBound(t *testing.T) {
	t.Parallel()
	for _, k := range boundKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				conf := limit{tokens: rapid.IntRange(2, 6).Draw(rt, "tokens"), per: rapid.SampledFrom([]time.Duration{7, 1000}).Draw(rt, "per"), waiters: 5, coldFactor: 2}
				if rapid.Bool().Draw(rt, "wait") {
					conf.wait = 2 * conf.per
				} else {
					conf.waiters = 0
				}
				n := rapid.IntRange(10, 80).Draw(rt, "calls")
				steps := rapid.SliceOfN(rapid.Int64Range(0, int64(conf.per)/3), n, n).Draw(rt, "steps")
				delays := rapid.SliceOfN(rapid.Int64Range(-2*int64(conf.per), int64(conf.per)), n, n).Draw(rt, "delays")
				var ran []call
				synctest.Test(t, func(t *testing.T) {
					l := trial{t, k}.new(conf)
					start := time.Now()
					var mu sync.Mutex
					var wg sync.WaitGroup
					for i := range steps {
						time.Sleep(time.Duration(steps[i]))
						p := newPipeline(t, l, &door{enter: func() error {
							if delays[i] < 0 {
								return nil
							}
							time.Sleep(time.Duration(delays[i]))
							return refuse()
						}})
						wg.Go(func() {
							_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
								mu.Lock()
								defer mu.Unlock()
								ran = append(ran, call{time.Since(start), 1})
								return 1, nil
							})
						})
						synctest.Wait()
					}
					wg.Wait()
				})
				for i := range ran {
					for j := i; j < len(ran); j++ {
						require.LessOrEqual(rt, float64(j-i+1), bounds[k.name](conf, ran[j].at-ran[i].at, 1)+1e-9, "calls %d to %d of %v, %+v", i, j, ran, conf)
					}
				}
			})
		})
	}
}

// Lanes together keep their limit, whatever they lend and yield.
func TestPropLanesTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const window = 100
		most := rapid.IntRange(2, 6).Draw(rt, "limit")
		steps := rapid.SliceOfN(rapid.Int64Range(0, 30), 10, 100).Draw(rt, "steps")
		lanes := rapid.SliceOfN(rapid.IntRange(0, 2), len(steps), len(steps)).Draw(rt, "lanes")
		waits := rapid.SliceOfN(rapid.Bool(), len(steps), len(steps)).Draw(rt, "waits")
		var ran []time.Duration
		synctest.Test(t, func(t *testing.T) {
			set, err := ratelimit.NewLaneSet("", ratelimit.Lanes{
				Lanes: []ratelimit.LaneConfig{
					{Name: "0", Rate: ratelimit.Per(1, 30), Burst: 4, MaxWait: 100, MaxWaiters: 3, LendAbove: 2},
					{Name: "1", Rate: ratelimit.Per(1, 40), Burst: 3, MaxWait: 150, MaxWaiters: 3, YieldTo: "0", YieldBelow: 2, Floor: ratelimit.Per(1, 200)},
					{Name: "2", Priority: policy.PriorityLow, Rate: ratelimit.Per(1, 20), Burst: 2, MaxWait: 200, MaxWaiters: 3},
				},
				Total: ratelimit.SlidingWindow{Limit: most, Window: window},
			})
			require.NoError(t, err)
			start := time.Now()
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i, step := range steps {
				time.Sleep(time.Duration(step))
				lane := set.Lane([]string{"0", "1", "2"}[lanes[i]])
				wg.Go(func() {
					if waits[i] && lane.Wait(t.Context(), 1) == nil || !waits[i] && lane.Allow() {
						mu.Lock()
						defer mu.Unlock()
						ran = append(ran, time.Since(start))
					}
				})
				synctest.Wait()
			}
			wg.Wait()
		})
		slices.Sort(ran)
		for i := most; i < len(ran); i++ {
			require.GreaterOrEqual(rt, ran[i]-ran[i-most], time.Duration(window), "%v", ran)
		}
	})
}
