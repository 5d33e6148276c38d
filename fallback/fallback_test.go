package fallback_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

type stock struct {
	Count   int
	InStock bool
}

var errDown = errors.New("down")

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	return p
}

func fails(err error) func(context.Context) (stock, error) {
	return func(context.Context) (stock, error) { return stock{}, err }
}

// shut is a gate that lets nothing in.
type shut struct{ reason policy.Reason }

func (g shut) Peek(*policy.Attempt) error { return nil }

func (g shut) Enter(context.Context, *policy.Attempt, int) error {
	return &policy.RejectedError{Reason: g.reason}
}

func (g shut) Leave(*policy.Attempt, int, policy.Outcome) {}

func (g shut) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "shut", Gate: g, Place: policy.PlaceBreaker}, nil
}

func TestHandlesByDefault(t *testing.T) {
	t.Parallel()
	want := map[policy.Kind]bool{
		policy.NotRun: true, policy.Failure: true, policy.Timeout: true, policy.Busy: true, policy.Throttled: true,
		policy.Success: false, policy.Permanent: false, policy.Canceled: false, policy.NumKinds: false,
	}
	require.Len(t, want, int(policy.NumKinds)+1, "every kind has an answer here")
	for k, handled := range want {
		f := policy.FailedCall{Outcome: policy.Outcome{Kind: k}}
		assert.Equal(t, handled, fallback.Handles(f), "%s", k)
		assert.Equal(t, handled, fallback.Value(1).Handles(f), "%s by a value", k)
		assert.Equal(t, handled, fallback.Func(func(context.Context, policy.FailedCall) (int, error) { return 0, nil }).Handles(f), "%s by a function", k)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, policy.FailedCall) (stock, error) { return stock{}, nil }
	permits, err := bulkhead.New("", bulkhead.Semaphore{})
	require.NoError(t, err)
	tests := []struct {
		name string
		fb   policy.Fallback[stock]
		want string
	}{
		{name: "zero", fb: fallback.Config[stock]{}},
		{name: "value", fb: fallback.Value(stock{Count: 1})},
		{name: "zero value", fb: fallback.Value(stock{})},
		{name: "function", fb: fallback.Func(fn)},
		{name: "all", fb: fallback.Config[stock]{Name: "default", Func: fn, When: fallback.Handles}},
		{name: "no function", fb: fallback.Func[stock](nil), want: "inventory.fallback.Func: want a function, not nil"},
		{
			name: "both", fb: fallback.Config[stock]{Name: "default", Func: fn, Value: stock{Count: 1}},
			want: "inventory.default.Value: want no Value beside a Func, which makes the answer",
		},
		{name: "gate", fb: fallback.Config[stock]{Gate: permits, Timeout: time.Second, AfterCancel: true}},
		{name: "nil gate", fb: fallback.Config[stock]{Gate: (*bulkhead.Permits)(nil)}, want: "inventory.fallback.Gate: want a gate, not a nil pointer to one"},
		{name: "timeout", fb: fallback.Config[stock]{Timeout: -1}, want: "inventory.fallback.Timeout: -1ns: at least 0 (0 is no bound)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("inventory", tt.fb)
			handle := policy.For(newPipeline(t), tt.fb)
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, handle.Err())
				assert.NotNil(t, p)
				return
			}
			require.EqualError(t, err, tt.want)
			require.EqualError(t, handle.Err(), tt.want)
			ce, ok := errors.AsType[*policy.ConfigError](err)
			require.True(t, ok)
			assert.Equal(t, "inventory", ce.Dependency)
		})
	}
}

// A typed handle is built without an error: a call that needs a fallback that is
// invalid says so, and does not panic.
func TestNilFuncDoesNotPanic(t *testing.T) {
	t.Parallel()
	h := policy.For(newPipeline(t), fallback.Func[stock](nil))
	_, err := h.Do(t.Context(), fails(errDown))
	require.ErrorIs(t, err, errDown)
	_, ok := errors.AsType[*policy.ConfigError](err)
	assert.True(t, ok, "%v", err)
}

func TestValueOfTypesThatDoNotCompare(t *testing.T) {
	t.Parallel()
	h := policy.For(newPipeline(t), fallback.Value([]int{1, 2}))
	v, err := h.Do(t.Context(), func(context.Context) ([]int, error) { return nil, errDown })
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2}, v)

	both := fallback.Config[map[string]int]{
		Value: map[string]int{},
		Func:  func(context.Context, policy.FailedCall) (map[string]int, error) { return nil, nil },
	}
	require.Error(t, both.Validate(), "an empty map is a value too")
}

func TestUntypedServesCallsOfItsType(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, fallback.Value(stock{InStock: true}))
	v, err := policy.Do(t.Context(), p, fails(errDown))
	require.NoError(t, err)
	assert.Equal(t, stock{InStock: true}, v)

	n, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 7, errDown })
	require.ErrorIs(t, err, errDown, "the call's own error stays")
	require.ErrorContains(t, err, "fallback_test.stock")
	assert.Equal(t, 7, n, "and so does its value")
	ps := p.Snapshot().Policies[0]
	assert.Equal(t, "fallback", ps.Name)
	assert.Equal(t, policy.FallbackSnapshot{Served: 1, Failed: 1}, *ps.Fallback)
}

func TestUntypedNil(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, fallback.Value[*stock](nil))
	v, err := policy.Do(t.Context(), p, func(context.Context) (*stock, error) { return &stock{}, errDown })
	require.NoError(t, err)
	assert.Nil(t, v)
}

func TestWhenChooses(t *testing.T) {
	t.Parallel()
	errOther := errors.New("other")
	p := newPipeline(t,
		fallback.Config[stock]{
			Name: "down", Value: stock{Count: 1},
			When: func(f policy.FailedCall) bool { return errors.Is(f.Err, errDown) },
		},
		fallback.Config[stock]{
			Name: "rest", Value: stock{Count: 2},
			When: func(f policy.FailedCall) bool {
				return fallback.Handles(f) || f.Outcome.Kind == policy.Permanent
			},
		},
	)
	for _, tt := range []struct {
		err  error
		want int
	}{
		{err: errDown, want: 1},
		{err: errOther, want: 2},
		{err: policy.AsPermanent(errOther), want: 2},
	} {
		v, err := policy.Do(t.Context(), p, fails(tt.err))
		require.NoError(t, err, "%v", tt.err)
		assert.Equal(t, tt.want, v.Count, "%v", tt.err)
	}
}

func TestFailedFuncLetsTheNextAnswer(t *testing.T) {
	t.Parallel()
	errCache := errors.New("cache empty")
	first := fallback.Config[stock]{Name: "cache", Func: func(context.Context, policy.FailedCall) (stock, error) {
		return stock{Count: 99}, errCache
	}}
	p := newPipeline(t, first, fallback.Value(stock{InStock: true}))
	r, err := policy.DoResult(t.Context(), p, fails(errDown))
	require.NoError(t, err)
	assert.Equal(t, stock{InStock: true}, r.Value)
	assert.True(t, r.Degraded)
	assert.Equal(t, errDown, r.Cause)

	a, err := first.Answer(t.Context(), policy.FailedCall{})
	require.Equal(t, errCache, err)
	assert.Zero(t, a, "a value that comes with an error is not used")
}

func TestCaseB57aCallerIsGone(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	p := newPipeline(t, fallback.Config[stock]{
		Func: func(context.Context, policy.FailedCall) (stock, error) { runs.Add(1); return stock{}, nil },
		When: func(policy.FailedCall) bool { runs.Add(1); return true },
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := policy.Do(ctx, p, func(ctx context.Context) (stock, error) {
		cancel()
		return stock{}, ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	_, err = policy.Do(ctx, p, fails(nil))
	require.ErrorIs(t, err, context.Canceled, "gone before it began")
	assert.Zero(t, runs.Load(), "nobody is there to be answered")
}

func TestCaseB57bAfterTheTotalTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		p := newPipeline(t, policy.Timeouts{Total: 100 * time.Millisecond}, fallback.Func(func(ctx context.Context, _ policy.FailedCall) (stock, error) {
			runs++
			time.Sleep(200 * time.Millisecond)
			return stock{InStock: true}, ctx.Err()
		}))
		start := time.Now()
		v, err := policy.Do(t.Context(), p, func(ctx context.Context) (stock, error) {
			<-ctx.Done()
			return stock{}, ctx.Err()
		})
		require.NoError(t, err, "the total timeout does not end the fallback's context")
		assert.Equal(t, stock{InStock: true}, v)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		assert.Equal(t, 1, runs)
		s := p.Snapshot()
		assert.EqualValues(t, 1, s.Calls[policy.Timeout], "one outcome")
		assert.Zero(t, s.Calls[policy.Success])
		assert.EqualValues(t, 1, s.Policies[0].Fallback.Served)
	})
}

func TestCaseB57cFailureStaysVisible(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, fallback.Value(stock{InStock: true}), breaker.Config{Window: time.Minute})
	r, err := policy.DoResult(t.Context(), p, fails(errDown))
	require.NoError(t, err)
	assert.EqualValues(t, 1, p.Snapshot().Policies[1].Breaker.Failures)
	assert.Equal(t, policy.Result[stock]{Value: stock{InStock: true}, Degraded: true, Cause: errDown}, r)
	s := p.Snapshot()
	assert.EqualValues(t, 1, s.Calls[policy.Failure])
	assert.EqualValues(t, 1, s.Attempts[policy.Failure])
	assert.Zero(t, s.Calls[policy.Success])
	assert.EqualValues(t, 1, s.Policies[0].Fallback.Served)
}

func TestCaseB57dFallbackFails(t *testing.T) {
	t.Parallel()
	errToo := errors.New("also down")
	p := newPipeline(t, fallback.Func(func(_ context.Context, f policy.FailedCall) (stock, error) {
		if f.Attempts == 0 {
			panic("fallback")
		}
		return stock{}, errToo
	}))
	_, err := policy.Do(t.Context(), p, fails(errDown))
	require.ErrorIs(t, err, errDown)
	require.ErrorIs(t, err, errToo)
	assert.EqualValues(t, 1, p.Snapshot().Policies[0].Fallback.Failed)

	own, err := bulkhead.New("own", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	broken := newPipeline(t, bulkhead.Semaphore{Limit: 1}, fallback.Config[stock]{
		Gate: own,
		Func: func(context.Context, policy.FailedCall) (stock, error) { panic("fallback") },
	})
	for range 3 { // a permit that is lost would be missed
		require.PanicsWithValue(t, "fallback", func() { _, _ = policy.Do(t.Context(), broken, fails(errDown)) })
	}
	s := broken.Snapshot()
	assert.EqualValues(t, 3, s.Policies[0].Fallback.Failed)
	assert.Zero(t, s.Policies[0].Fallback.Guard.Bulkhead.InFlight)
	assert.Zero(t, s.Policies[1].Bulkhead.InFlight)
	assert.EqualValues(t, 3, s.Calls[policy.Failure])
}

func TestCaseB57eFallbackIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, err := bulkhead.New("own", bulkhead.Semaphore{Limit: 1})
		require.NoError(t, err)
		expensive := fallback.Config[stock]{Gate: own, Func: func(context.Context, policy.FailedCall) (stock, error) {
			time.Sleep(time.Second)
			return stock{InStock: true}, nil
		}}
		p := newPipeline(t, expensive)
		done := make(chan error)
		go func() {
			_, err := policy.Do(t.Context(), p, fails(errDown))
			done <- err
		}()
		synctest.Wait() // it is in the fallback
		v, err := policy.Do(t.Context(), p, fails(errDown))
		require.ErrorIs(t, err, errDown)
		require.ErrorIs(t, err, bulkhead.ErrFull)
		assert.Zero(t, v)
		fs := p.Snapshot().Policies[0].Fallback
		assert.EqualValues(t, 1, fs.Rejected)
		assert.Zero(t, fs.Failed)
		assert.Equal(t, 1, fs.Guard.Bulkhead.InFlight)
		require.NoError(t, <-done)

		// A weaker one may follow, and a typed handle shares the permits.
		h := policy.For(p, fallback.Chain[stock](expensive, fallback.Value(stock{Count: 1})))
		go func() {
			_, err := h.Do(t.Context(), fails(errDown))
			done <- err
		}()
		synctest.Wait()
		v, err = h.Do(t.Context(), fails(errDown))
		require.NoError(t, err)
		assert.Equal(t, stock{Count: 1}, v)
		require.NoError(t, <-done)
	})
}

func TestCaseB57fCauseIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got policy.FailedCall
		see := fallback.Func(func(_ context.Context, f policy.FailedCall) (stock, error) { got = f; return stock{}, nil })
		for _, reason := range []policy.Reason{policy.ReasonOpen, policy.ReasonConcurrency, policy.ReasonRate} {
			_, err := policy.Do(t.Context(), newPipeline(t, shut{reason: reason}, see), fails(nil))
			require.NoError(t, err)
			assert.Equal(t, "inventory", got.Dependency)
			assert.Equal(t, policy.NotRun, got.Outcome.Kind)
			assert.Zero(t, got.Attempts)
			re, ok := errors.AsType[*policy.RejectedError](got.Err)
			require.True(t, ok, "%v", got.Err)
			assert.Equal(t, reason, re.Reason)
		}
		p := newPipeline(t, policy.Timeouts{Attempt: time.Second}, see)
		_, err := policy.Do(t.Context(), p, func(ctx context.Context) (stock, error) {
			<-ctx.Done()
			return stock{}, ctx.Err()
		})
		require.NoError(t, err)
		assert.Equal(t, policy.Timeout, got.Outcome.Kind)
		assert.Equal(t, 1, got.Attempts)
		require.ErrorIs(t, got.Err, context.DeadlineExceeded)
	})
}

func TestPermanentIsNotMasked(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, fallback.Value(stock{InStock: true}))
	_, err := policy.Do(t.Context(), p, fails(policy.AsPermanent(errDown)))
	require.ErrorIs(t, err, errDown)
}

func TestFallbackConcurrentSafe(t *testing.T) {
	t.Parallel()
	fb := fallback.Func(func(_ context.Context, f policy.FailedCall) (int, error) { return f.Attempts, nil })
	one, two := newPipeline(t, fb), policy.For(newPipeline(t), fb)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				a, err := policy.Do(t.Context(), one, func(context.Context) (int, error) { return 0, errDown })
				assert.NoError(t, err)
				b, err := two.Do(t.Context(), func(context.Context) (int, error) { return 0, errDown })
				assert.NoError(t, err)
				assert.Equal(t, 2, a+b)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 4000, one.Snapshot().Policies[0].Fallback.Served)
}

func FuzzHandles(f *testing.F) {
	for k := range policy.NumKinds {
		f.Add(uint8(k), 0)
	}
	f.Add(uint8(255), -1)
	f.Fuzz(func(t *testing.T, kind uint8, attempts int) {
		call := policy.FailedCall{Attempts: attempts, Outcome: policy.Outcome{Kind: policy.Kind(kind)}}
		if k := call.Outcome.Kind; k >= policy.NumKinds || k.IsAnswer() || k == policy.Canceled {
			assert.False(t, fallback.Handles(call), "an answer, a caller who has gone and what nobody knows are not hidden")
		}
		a, err := fallback.Value(attempts).Answer(t.Context(), call)
		require.NoError(t, err)
		assert.Equal(t, policy.Answer[int]{Value: attempts}, a)
	})
}
