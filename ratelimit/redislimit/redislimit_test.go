package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// mini starts a server in memory and returns a client of it.
func mini(tb testing.TB) (*miniredis.Miniredis, redis.UniversalClient) {
	tb.Helper()
	m := miniredis.RunT(tb)
	return m, client(tb, m.Addr())
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	slow := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = slow.Close() })
	ok := client(t, "127.0.0.1:1")
	rule := redislimit.TokenBucket{Rate: ratelimit.PerSecond(1)}
	limits := func(rules ...redislimit.Rule) (all []redislimit.Limit) {
		for i, r := range rules {
			all = append(all, redislimit.Limit{Name: strconv.Itoa(i), Rule: r})
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		cfg    redislimit.Config
		fields []string
	}{
		{"zero", redislimit.Config{}, []string{"Client", "Limits"}},
		{"unsafe client", redislimit.Config{Client: slow, Limits: limits(rule)}, []string{"Client", "Client", "Client"}},
		{"two clients", redislimit.Config{Client: ok, Options: &redis.UniversalOptions{}, Limits: limits(rule)}, []string{"Options"}},
		{"no address", redislimit.Config{Options: &redis.UniversalOptions{}, Limits: limits(rule)}, []string{"Options.Addrs"}},
		{"prefix", redislimit.Config{Client: ok, Prefix: "a{b", Limits: limits(rule)}, []string{"Prefix"}},
		{"shards", redislimit.Config{Client: ok, Shards: -1, Limits: limits(rule)}, []string{"Shards"}},
		{"too many shards", redislimit.Config{Client: ok, Shards: 3, Limits: limits(redislimit.TokenBucket{Rate: ratelimit.PerSecond(9), Burst: 2}, redislimit.FixedWindow{Limit: 2, Window: time.Second})}, []string{"Limits[0].Rule.Burst", "Limits[1].Rule.Limit"}},
		{"names", redislimit.Config{Client: ok, Limits: []redislimit.Limit{{Rule: rule}, {Rule: rule}}}, []string{"Limits[1].Name"}},
		{"no rule", redislimit.Config{Client: ok, Limits: limits(nil)}, []string{"Limits[0].Rule"}},
		{"keyed twice", redislimit.Config{Client: ok, Limits: []redislimit.Limit{{Rule: rule, Keyed: true, KeyOf: sharedlimit.ByKey}}}, []string{"Limits[0].Keyed"}},
		{"rules", redislimit.Config{Client: ok, Limits: limits(
			redislimit.TokenBucket{Burst: -1}, redislimit.TokenBucket{Rate: ratelimit.PerSecond(math.NaN())}, redislimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1))},
			redislimit.FixedWindow{Window: 1500 * time.Microsecond}, redislimit.SlidingWindow{Limit: 1}, redislimit.SlidingLog{Limit: 100_001, Window: time.Second},
		)}, []string{
			"Limits[0].Rule.Rate.Tokens", "Limits[0].Rule.Rate.Per", "Limits[0].Rule.Burst", "Limits[1].Rule.Rate.Tokens", "Limits[2].Rule.Rate.Tokens",
			"Limits[3].Rule.Limit", "Limits[3].Rule.Window", "Limits[4].Rule.Window", "Limits[5].Rule.Limit",
		}},
		{"leases of a log", redislimit.Config{Client: ok, Limits: limits(redislimit.SlidingLog{Limit: 1, Window: time.Second}), Settings: sharedlimit.Settings{LeaseFor: time.Second}}, []string{"Settings.LeaseFor"}},
		{"settings", redislimit.Config{Client: ok, Limits: limits(rule), Settings: sharedlimit.Settings{Timeout: -1, Nodes: -1, StandIn: 9, MaxWaiters: 1}}, []string{"Settings.Timeout", "Settings.StandIn", "Settings.Nodes", "Settings.MaxWaiters"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			require.Error(t, err)
			var fields []string
			for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
				fault := &policy.ConfigError{}
				require.ErrorAs(t, err, &fault)
				assert.NotEmpty(t, fault.Want)
				fields = append(fields, fault.Field)
			}
			assert.Equal(t, tt.fields, fields)
			_, err = redislimit.New("", tt.cfg)
			require.Error(t, err)
			_, err = policy.New("dep", tt.cfg)
			require.Error(t, err)
		})
	}
}

// Rates of any size are counted without drift, or refused.
func TestExtremeRates(t *testing.T) {
	t.Parallel()
	_, c := mini(t)
	for _, rate := range []ratelimit.Rate{
		ratelimit.PerSecond(1e-6), ratelimit.PerSecond(1.0 / 3), ratelimit.PerSecond(math.Pi), ratelimit.PerSecond(7), ratelimit.PerSecond(1e9),
		ratelimit.Per(1, 24*365*time.Hour), ratelimit.Per(1e12, 24*time.Hour), ratelimit.Every(7 * time.Nanosecond),
	} {
		cfg := one(c, redislimit.TokenBucket{Rate: rate, Burst: 5})
		cfg.Name = fmt.Sprint(rate)
		l := limiter(t, cfg)
		require.NoError(t, l.Wait(t.Context(), 5), "%s", rate)
	}
	for _, rate := range []ratelimit.Rate{ratelimit.PerSecond(1e300), ratelimit.PerSecond(1e-300)} {
		_, err := redislimit.New("", one(c, redislimit.TokenBucket{Rate: rate, Burst: 5}))
		assert.Error(t, err, "%s", rate)
	}
}

func TestSeveralLimitsAllOrNothing(t *testing.T) {
	t.Parallel()
	_, c := mini(t)
	route := func(ctx context.Context, _ *policy.Call) string { s, _ := ctx.Value(routeKey{}).(string); return s }
	l := limiter(t, redislimit.Config{Client: c, Limits: []redislimit.Limit{
		{Name: "user", Rule: redislimit.FixedWindow{Limit: 3, Window: time.Hour}, Keyed: true},
		{Name: "route", Rule: redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 4}, KeyOf: route},
		{Name: "all", Rule: redislimit.SlidingLog{Limit: 6, Window: time.Hour}},
	}, Settings: sharedlimit.Settings{Nodes: 1}})
	ask := func(user, route string) string {
		err := l.Wait(context.WithValue(byKey(user), routeKey{}, route), 1)
		if err == nil {
			return ""
		}
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		part := &ratelimit.PartError{}
		require.ErrorAs(t, err, &part)
		return part.Part
	}
	for range 3 {
		assert.Empty(t, ask("ann", "/a"))
	}
	for range 5 {
		assert.Equal(t, "user", ask("ann", "/a"))
	}
	assert.Empty(t, ask("bob", "/a"), "what was refused took nothing from the route")
	assert.Equal(t, "route", ask("bob", "/a"))
	assert.Empty(t, ask("bob", "/b"))
	assert.Empty(t, ask("cid", "/b"))
	assert.Equal(t, "all", ask("cid", "/b"))

	s := l.Snapshot(time.Now()).Limiter
	require.Len(t, s.Limits, 3)
	for i, want := range []uint64{5, 1, 1} {
		assert.Equal(t, want, s.Limits[i].Rejected[policy.ReasonRate], s.Limits[i].Name)
	}

	err := l.Wait(byKey("eve"), 5)
	require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
	re := &policy.RejectedError{}
	require.ErrorAs(t, err, &re)
	assert.Equal(t, policy.Never, re.RetryAfter)
}

type routeKey struct{}

// A call that did not run gives its token to the next one of this process, without a trip.
func TestRefundMakesNoTrip(t *testing.T) {
	t.Parallel()
	for name, rule := range rules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := mini(t)
			l := limiter(t, one(c, rule))
			broken := errors.New("refused behind it")
			closed := false
			pipe, err := policy.New("dep", l, refuser{&closed, broken})
			require.NoError(t, err)
			call := func() error {
				_, err := policy.Do(t.Context(), pipe, func(context.Context) (int, error) { return 0, nil })
				return err
			}
			for range 9 {
				require.NoError(t, call())
			}
			closed = true
			for range 20 { // each takes the last token and gives it back
				require.ErrorIs(t, call(), broken)
			}
			assert.EqualValues(t, 10, shared(l).RoundTrips)
			closed = false
			require.NoError(t, call())
			require.ErrorIs(t, call(), ratelimit.ErrLimited)
			assert.EqualValues(t, 11, shared(l).RoundTrips)

			// By hand.
			now := time.Now()
			other := limiter(t, redislimit.Config{Client: c, Name: "other", Limits: []redislimit.Limit{{Rule: rule}}, Settings: sharedlimit.Settings{Nodes: 1}})
			_, ok := other.Take(now, 10)
			require.True(t, ok)
			other.Refund(time.Now(), 2)
			require.NoError(t, other.Wait(t.Context(), 2))
			require.Error(t, other.Wait(t.Context(), 1))
		})
	}
}

// A fixed window takes back only into itself.
func TestRefundAfterTheWindow(t *testing.T) {
	t.Parallel()
	m, c := mini(t)
	l := limiter(t, one(c, redislimit.FixedWindow{Limit: 1, Window: 20 * time.Millisecond}))
	taken := time.Now()
	_, ok := l.Take(taken, 1)
	require.True(t, ok)
	eventually(t, time.Second, "the window ends", func() bool { return time.Since(taken) > 25*time.Millisecond })
	m.FastForward(25 * time.Millisecond)
	l.Refund(taken, 1)
	require.NoError(t, l.Wait(t.Context(), 1))
	require.Error(t, l.Wait(t.Context(), 1), "the token of the last window")
}

// refuser is a gate that refuses when it is told to.
type refuser struct {
	closed *bool
	err    error
}

func (r refuser) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "refuser", Gate: r, Place: policy.PlaceBreaker}, nil
}
func (refuser) Peek(*policy.Attempt) error { return nil }
func (r refuser) Enter(context.Context, *policy.Attempt, int) error {
	if *r.closed {
		return &policy.RejectedError{Err: r.err}
	}
	return nil
}
func (refuser) Leave(*policy.Attempt, int, policy.Outcome) {}

func TestSetRateGrantsNothing(t *testing.T) {
	t.Parallel()
	_, c := mini(t)
	l := limiter(t, one(c, redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10}))
	require.NoError(t, l.Wait(t.Context(), 10))
	require.NoError(t, l.SetRate(ratelimit.Every(time.Second)))
	re := &policy.RejectedError{}
	require.ErrorAs(t, l.Wait(t.Context(), 1), &re)
	assert.InDelta(t, time.Second, re.RetryAfter, float64(50*time.Millisecond))
	require.Error(t, l.SetRate(ratelimit.Rate{}))
	assert.InDelta(t, 1, l.Snapshot(time.Now()).Limiter.Rate, 1e-9)

	w := limiter(t, one(c, redislimit.FixedWindow{Limit: 10, Window: time.Hour}))
	require.NoError(t, w.Wait(t.Context(), 10))
	require.NoError(t, w.SetRate(ratelimit.Per(12, time.Hour)))
	require.NoError(t, w.Wait(t.Context(), 2))
	require.Error(t, w.Wait(t.Context(), 1))
}

// Tokens that were taken ahead and not used are there for others after Close.
func TestLeasesAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]redislimit.Rule{
		"token bucket":   redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 100},
		"fixed window":   redislimit.FixedWindow{Limit: 100, Window: time.Hour},
		"sliding window": redislimit.SlidingWindow{Limit: 100, Window: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := mini(t)
			cfg := one(c, rule)
			cfg.Settings.LeaseFor = time.Minute
			l := limiter(t, cfg)
			for range 21 {
				require.True(t, allow(l))
			}
			leased := shared(l).Leased
			require.Positive(t, leased)
			assert.Less(t, shared(l).RoundTrips, uint64(10))
			require.NoError(t, l.Close(t.Context()))
			assert.ErrorIs(t, l.Wait(t.Context(), 1), policy.ErrClosed)

			next, passed := limiter(t, one(c, rule)), 0
			for allow(next) {
				passed++
			}
			assert.Equal(t, 79, passed)
		})
	}
}

// A lease is no older than it may be.
func TestLeasesExpire(t *testing.T) {
	t.Parallel()
	_, c := mini(t)
	cfg := one(c, redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 100})
	cfg.Settings.LeaseFor = 50 * time.Millisecond
	l := limiter(t, cfg)
	for range 21 {
		require.True(t, allow(l))
	}
	eventually(t, 2*time.Second, "given back", func() bool { return shared(l).Leased == 0 })
	other := limiter(t, one(c, redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 100}))
	eventually(t, 2*time.Second, "there for others", func() bool { return other.Wait(t.Context(), 79) == nil })
	require.Error(t, other.Wait(t.Context(), 1))
}

// Shares follow the number of processes, as they come and go.
func TestHeartbeatsDivideTheLimit(t *testing.T) {
	t.Parallel()
	m, c := mini(t)
	cfg := redislimit.Config{
		Client: c, Limits: []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 12}}},
		Settings: sharedlimit.Settings{LocalOnly: true, Heartbeat: 10 * time.Millisecond},
	}
	nodes := func(l *sharedlimit.Limiter, n int) {
		t.Helper()
		eventually(t, 2*time.Second, fmt.Sprint(n, " nodes"), func() bool { return shared(l).Nodes == n })
	}
	a, b, d := limiter(t, cfg), limiter(t, cfg), limiter(t, cfg)
	for _, l := range []*sharedlimit.Limiter{a, b, d} { // the first call begins to count
		require.NoError(t, l.Wait(t.Context(), 1))
	}
	nodes(a, 3)
	nodes(b, 3)
	passed := 0
	for allow(a) {
		passed++
	}
	assert.LessOrEqual(t, passed, 4)
	assert.GreaterOrEqual(t, passed, 3)
	assert.Equal(t, policy.SharedModeLocal, shared(a).Mode)
	assert.Zero(t, shared(a).RoundTrips, "no shared store on the path")
	require.NoError(t, d.Close(t.Context()))
	nodes(b, 2)
	for _, k := range m.Keys() {
		assert.Positive(t, m.TTL(k), k)
	}
	m.Close()
	passed = 0
	for allow(b) {
		passed++
	}
	assert.LessOrEqual(t, passed, 6)
	assert.GreaterOrEqual(t, passed, 3)
	assert.Equal(t, 2, shared(b).Nodes, "the last number that was heard")
}

func TestWaitForTokens(t *testing.T) {
	t.Parallel()
	c := client(t, startRedis(t).Addr)
	cfg := one(c, redislimit.TokenBucket{Rate: ratelimit.Every(20 * time.Millisecond), Burst: 1})
	cfg.Settings.MaxWait, cfg.Settings.MaxWaiters = 10*time.Second, 1
	l := limiter(t, cfg)
	require.True(t, allow(l))
	start := time.Now()
	require.NoError(t, l.Wait(t.Context(), 1))
	assert.Greater(t, time.Since(start), 10*time.Millisecond)

	cfg.Name, cfg.Limits[0].Rule = "slow", redislimit.TokenBucket{Rate: ratelimit.Every(time.Second), Burst: 1}
	l = limiter(t, cfg)
	require.True(t, allow(l))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := l.Wait(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ratelimit.ErrLimited, "refused before the wait")

	canceled, give := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	give(cause)
	err = l.Wait(canceled, 1)
	require.ErrorIs(t, err, cause)
	require.NotErrorIs(t, err, policy.ErrRejected)
}
