package redislimit

import (
	"math/big"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// model is a limit as slowly and plainly as can be. Times are microseconds.
type model interface {
	// avail returns the tokens that can be taken at a time, which never goes back.
	avail(now int64) int
	take(now int64, n int)
}

// bucketModel counts in exact fractions.
type bucketModel struct {
	rate  *big.Rat // per microsecond
	burst int
	level *big.Rat
	last  int64
}

func (m *bucketModel) avail(now int64) int {
	m.level.Add(m.level, new(big.Rat).Mul(m.rate, big.NewRat(now-m.last, 1)))
	m.last = now
	if full := big.NewRat(int64(m.burst), 1); m.level.Cmp(full) > 0 {
		m.level = full
	}
	return int(new(big.Int).Quo(m.level.Num(), m.level.Denom()).Int64())
}

func (m *bucketModel) take(now int64, n int) {
	m.avail(now)
	m.level.Sub(m.level, big.NewRat(int64(n), 1))
}

type fixedModel struct {
	limit, used int
	window, end int64
}

func (m *fixedModel) avail(now int64) int {
	if now >= m.end {
		return m.limit
	}
	return m.limit - m.used
}

func (m *fixedModel) take(now int64, n int) {
	if now >= m.end {
		m.end, m.used = now+m.window, 0
	}
	m.used += n
}

type slidingModel struct {
	limit  int
	window int64
	counts map[int64]int
}

func (m *slidingModel) avail(now int64) int {
	i, e := now/m.window, now%m.window
	weighed := (int64(m.counts[i-1])*(m.window-e) + m.window - 1) / m.window
	return max(m.limit-int(weighed)-m.counts[i], 0)
}

func (m *slidingModel) take(now int64, n int) { m.counts[now/m.window] += n }

type logModel struct {
	limit  int
	window int64
	times  []int64
}

func (m *logModel) avail(now int64) int {
	n := m.limit
	for _, t := range m.times {
		if t > now-m.window {
			n--
		}
	}
	return n
}

func (m *logModel) take(now int64, n int) {
	for range n {
		m.times = append(m.times, now)
	}
}

// drawn draws a rule and its model.
func drawn(t *rapid.T) (Rule, model, int) {
	limit := rapid.IntRange(1, 20).Draw(t, "limit")
	window := time.Duration(rapid.IntRange(1, 5000).Draw(t, "window")) * time.Millisecond
	switch rapid.IntRange(0, 3).Draw(t, "algorithm") {
	case 0:
		tokens := rapid.IntRange(1, 50).Draw(t, "tokens")
		rate := new(big.Rat).SetFrac64(int64(tokens), window.Microseconds())
		m := &bucketModel{rate: rate, burst: limit, level: big.NewRat(int64(limit), 1)}
		return TokenBucket{Rate: ratelimit.Per(float64(tokens), window), Burst: limit}, m, limit
	case 1:
		return FixedWindow{Limit: limit, Window: window}, &fixedModel{limit: limit, window: window.Microseconds()}, limit
	case 2:
		return SlidingWindow{Limit: limit, Window: window}, &slidingModel{limit: limit, window: window.Microseconds(), counts: map[int64]int{}}, limit
	default:
		return SlidingLog{Limit: limit, Window: window}, &logModel{limit: limit, window: window.Microseconds()}, limit
	}
}

// clock is the time of a server in memory.
type clock struct {
	m   *miniredis.Miniredis
	now int64
}

func (c *clock) advance(us int64) {
	c.now += us
	c.m.SetTime(time.UnixMicro(c.now))
	c.m.FastForward(time.Duration(us) * time.Microsecond)
}

// lives returns the keys with the time they have left.
func lives(m *miniredis.Miniredis) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, k := range m.Keys() {
		all[k] = m.TTL(k)
	}
	return all
}

// Each script decides as a model does that is slow and obvious: for costs, batches and
// several limits at once, to the microsecond.
func TestScriptsAgainstModels(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	rapid.Check(t, func(t *rapid.T) {
		m.FlushAll()
		clock := &clock{m: m, now: 1_700_000_000_000_000}
		clock.advance(0)
		var limits []Limit
		var models []model
		most := maxTokens
		windowed := false
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			rule, md, limit := drawn(t)
			limits = append(limits, Limit{Name: string(rune('a' + i)), Rule: rule})
			models, most = append(models, md), min(most, limit)
			_, is := rule.(FixedWindow)
			windowed = windowed || is
		}
		cfg := Config{Client: client, Limits: limits}
		require.NoError(t, errorOf(cfg))
		s := newStore(cfg.withDefaults())
		keys := make([]string, len(limits))
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			clock.advance(rapid.Int64Range(0, 700_000).Draw(t, "after"))
			want := rapid.IntRange(1, most).Draw(t, "want")
			least := rapid.IntRange(1, want).Draw(t, "least")
			there := want
			for _, md := range models {
				there = min(there, md.avail(clock.now))
			}
			before := lives(m)
			g, err := s.Take(t.Context(), &sharedlimit.Request{Keys: keys, Want: want, Least: least})
			require.NoError(t, err)
			for k, left := range lives(m) {
				require.Positive(t, left, "%s has no end", k)
			}
			if there >= least {
				require.Equal(t, there, g.Tokens)
				for _, md := range models {
					md.take(clock.now, there)
				}
				continue
			}
			require.Zero(t, g.Tokens)
			require.Less(t, models[g.Limit].avail(clock.now), least, "the limit that was named is not short")
			for k, left := range lives(m) {
				require.LessOrEqual(t, left, before[k], "a refusal gave %s a longer life", k)
			}
			if windowed { // a key's life is in whole milliseconds
				continue
			}
			// Nobody else takes any: then they are there, and not before.
			at := clock.now + g.RetryAfter.Microseconds()
			short := false
			for _, md := range peeked(models) {
				short = short || md.avail(at-1) < least
			}
			require.True(t, short, "the tokens were there before the %s that was said", g.RetryAfter)
			for _, md := range peeked(models) {
				require.GreaterOrEqual(t, md.avail(at), least, "the tokens are not there after the %s that was said", g.RetryAfter)
			}
		}
	})
}

// peeked returns copies that may be asked about the future.
func peeked(models []model) []model {
	all := make([]model, len(models))
	for i, md := range models {
		all[i] = md
		if b, ok := md.(*bucketModel); ok {
			c := *b
			c.level = new(big.Rat).Set(b.level)
			all[i] = &c
		}
	}
	return all
}

func errorOf(c Config) error {
	for _, l := range c.Limits {
		if err := validate(l.Rule, 1); err != nil {
			return err
		}
	}
	return nil
}
