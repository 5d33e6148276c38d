package redislimit_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// uneven is how the load of four nodes is spread.
var uneven = []int{7, 1, 1, 1}

// fleet is four limiters under load, one for each node.
type fleet struct {
	nodes   []*sharedlimit.Limiter
	passed  atomic.Int64
	asked   atomic.Int64
	slowest atomic.Int64
	stop    chan struct{}
	wg      sync.WaitGroup
}

// load makes so many calls per second in all, spread unevenly, until end is called.
func load(tb testing.TB, perSecond int, nodes ...*sharedlimit.Limiter) *fleet {
	tb.Helper()
	f := &fleet{nodes: nodes, stop: make(chan struct{})}
	for i, n := range nodes {
		// A few goroutines each, so that a slow call does not thin the load out.
		const each = 4
		for range each {
			f.wg.Add(1)
			go f.node(n, each*10*time.Second/time.Duration(perSecond*uneven[i]))
		}
	}
	tb.Cleanup(f.end)
	return f
}

func (f *fleet) node(n *sharedlimit.Limiter, interval time.Duration) {
	defer f.wg.Done()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	next := time.Now()
	for {
		select {
		case <-f.stop:
			return
		case <-ticker.C:
		}
		for ; time.Now().After(next); next = next.Add(interval) {
			start := time.Now()
			f.asked.Add(1)
			if allow(n) {
				f.passed.Add(1)
			}
			took := int64(time.Since(start))
			for old := f.slowest.Load(); took > old && !f.slowest.CompareAndSwap(old, took); old = f.slowest.Load() {
				continue
			}
			select {
			case <-f.stop:
				return
			default:
			}
			if time.Since(next) > 200*time.Millisecond { // a machine that is too busy: do not catch up for ever
				next = time.Now()
			}
		}
	}
}

func (f *fleet) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.wg.Wait()
}

func fourNodes(tb testing.TB, addr string, cfg func(*redislimit.Config)) []*sharedlimit.Limiter {
	tb.Helper()
	var nodes []*sharedlimit.Limiter
	for range 4 {
		c := redislimit.Config{Client: client(tb, addr), Limits: []redislimit.Limit{{Rule: redislimit.TokenBucket{Rate: ratelimit.PerSecond(600), Burst: 60}}}, Settings: sharedlimit.Settings{Nodes: 4}}
		if cfg != nil {
			cfg(&c)
		}
		nodes = append(nodes, limiter(tb, c))
	}
	return nodes
}

// Tests of this file are about time, so they run alone.
//
// The rate is a tenth of that of the orders: 600/s over four nodes of which one has most of
// the load.
func TestTotalOfAFleetIsTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  func(*redislimit.Config)
	}{
		{"one key", nil},
		{"shards", func(c *redislimit.Config) { c.Shards = 4 }},
		{"leases", func(c *redislimit.Config) { c.Settings.LeaseFor = 100 * time.Millisecond }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startRedis(t)
			// A machine that is too busy to ask lets fewer through: one undisturbed round decides.
			for round := 1; ; round++ {
				nodes := fourNodes(t, s.Addr, func(c *redislimit.Config) {
					// A machine that is too busy to ask must not let the bucket overflow,
					// or let the share decide.
					c.Limits[0].Rule = redislimit.TokenBucket{Rate: ratelimit.PerSecond(600), Burst: 300}
					c.Settings.Timeout = 10 * time.Second
					c.Name = "round" + strconv.Itoa(round)
					if tt.cfg != nil {
						tt.cfg(c)
					}
				})
				start := time.Now()
				f := load(t, 1500, nodes...)
				time.Sleep(2 * time.Second)
				f.end()
				took := time.Since(start)
				want := 300 + 600*took.Seconds()
				var trips uint64
				for _, n := range nodes {
					trips += shared(n).RoundTrips
				}
				passed := float64(f.passed.Load())
				t.Logf("%.0f of %d calls passed in %s, the limit being %.0f (%+.2f %%); %d round trips", passed, f.asked.Load(), took, want, 100*(passed/want-1), trips)
				require.LessOrEqual(t, passed, 1.02*want)
				if passed < 0.98*want && round < 4 {
					continue
				}
				assert.InEpsilon(t, want, passed, 0.02)
				return
			}
		})
	}
}

// timeout is long enough for a busy machine to answer in.
const timeout = 200 * time.Millisecond

// The server is killed in the middle of a run and comes back, with nothing in it.
func TestOutageOfTheServer(t *testing.T) {
	s := startRedis(t)
	var out bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(&lockedWriter{w: &out, mu: &mu}, nil))
	var changes atomic.Int64
	nodes := fourNodes(t, s.Addr, func(c *redislimit.Config) {
		c.Settings.Logger = logger
		c.Settings.Timeout = timeout
		c.Client, c.Options = nil, &redis.UniversalOptions{Addrs: []string{s.Addr}}
	})
	for _, n := range nodes {
		n.Subscribe(func(e policy.Event) {
			if e.Kind == policy.EventStateChange {
				changes.Add(1)
			}
		})
	}
	f := load(t, 1500, nodes...)
	time.Sleep(500 * time.Millisecond)

	s.Stop()
	down, before := time.Now(), f.passed.Load()
	time.Sleep(2 * time.Second)
	outage, during := time.Since(down), f.passed.Load()-before
	for _, n := range nodes {
		assert.Equal(t, policy.SharedModeLocal, shared(n).Mode)
	}
	most := 600*outage.Seconds() + 60
	t.Logf("in an outage of %s %d calls passed, of at most %.0f; the slowest took %s", outage, during, most, time.Duration(f.slowest.Load()))
	assert.LessOrEqual(t, float64(during), most+4)
	assert.Greater(t, float64(during), 600*outage.Seconds()*0.25, "each node has its share")
	assert.Less(t, time.Duration(f.slowest.Load()), timeout+scheduling)

	begin := time.Now()
	s.Start(t)
	eventually(t, 5*time.Second, "shared again", func() bool {
		for _, n := range nodes {
			if shared(n).Mode != policy.SharedModeShared {
				return false
			}
		}
		return true
	})
	back := time.Since(begin)
	assert.Less(t, back, time.Second)
	before, begin = f.passed.Load(), time.Now()
	time.Sleep(time.Second)
	after, second := f.passed.Load()-before, time.Since(begin)
	t.Logf("shared again %s after it was started; in the %s that followed %d calls passed", back, second, after)
	assert.LessOrEqual(t, float64(after), 600*second.Seconds()+60, "no burst above limit and burst")
	assert.LessOrEqual(t, float64(after), 600*second.Seconds()*1.02+10, "no burst at all: the bucket begins as empty as the shares are")
	f.end()
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 8, strings.Count(out.String(), "shared limit changed its mode"), "one line for each change and node:\n%s", out.String())
	assert.EqualValues(t, 8, changes.Load())
}

// scheduling is what a busy machine may take to run a goroutine.
const scheduling = 200 * time.Millisecond

type lockedWriter struct {
	w  *bytes.Buffer
	mu *sync.Mutex
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// The server is there and does not answer. Its process is stopped, not its host.
func TestFrozenServer(t *testing.T) {
	s := startRedis(t)
	cfg := one(client(t, s.Addr), redislimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 100})
	cfg.Settings = sharedlimit.Settings{Nodes: 4}
	l := limiter(t, cfg)
	require.True(t, allow(l))

	s.Signal(t, "STOP")
	frozen := time.Now()
	slow := 0
	for shared(l).Mode == policy.SharedModeShared {
		start := time.Now()
		allow(l)
		took := time.Since(start)
		assert.Less(t, took, 50*time.Millisecond+scheduling)
		slow++
	}
	assert.Equal(t, 5, slow, "calls that paid the timeout")

	// From now on no call does I/O: the only trips are those of the probes.
	trips, calls, passed, longest, over := shared(l).RoundTrips, 0, 0, time.Duration(0), 0
	for ; time.Since(frozen) < 10*time.Second; time.Sleep(time.Millisecond) {
		start := time.Now()
		if allow(l) {
			passed++
		}
		took := time.Since(start)
		if longest = max(longest, took); took > time.Millisecond {
			over++
		}
		calls++
	}
	probes := shared(l).RoundTrips - trips
	t.Logf("%d calls, %d passed, the slowest took %s, %d took over 1 ms; %d probes", calls, passed, longest, over, probes)
	assert.LessOrEqual(t, int(probes), 10*4+1)
	if !raceEnabled {
		assert.Less(t, over, calls/20+1)
	}
	assert.LessOrEqual(t, passed, 25+25*11)

	s.Signal(t, "CONT")
	eventually(t, time.Second, "shared again", func() bool { return shared(l).Mode == policy.SharedModeShared })
}
