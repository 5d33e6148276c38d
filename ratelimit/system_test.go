package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func newShedder(tb testing.TB, cfg ratelimit.System) *ratelimit.Shedder {
	tb.Helper()
	s, err := ratelimit.NewSystem("", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// gauge is a reading that a test sets.
type gauge struct {
	cpu   float64
	delay time.Duration
	err   error
	reads int
}

func (g *gauge) readCPU() (float64, error) {
	g.reads++
	return g.cpu, g.err
}

func (g *gauge) readDelay() (time.Duration, error) { return g.delay, g.err }

func loadOf(t *testing.T, s policy.Snapshotter) policy.LoadSnapshot {
	t.Helper()
	l := s.Snapshot(time.Now()).Limiter
	require.NotNil(t, l)
	require.NotNil(t, l.Load)
	return *l.Load
}

// Overload begins with a reading above a bound, and ends when there was none for the
// CoolDown.
func TestSystemKnowsOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{}
		s := newShedder(t, ratelimit.System{CPU: g.readCPU, Delay: g.readDelay, MinInFlight: 1})
		call := func() error {
			err := s.Acquire(time.Now(), policy.PriorityNormal)
			if err == nil {
				s.Release(time.Now(), policy.PriorityNormal, 0)
			}
			return err
		}
		require.NoError(t, s.Acquire(time.Now(), policy.PriorityNormal)) // the one that may always be in flight
		for range 20 {
			time.Sleep(100 * ms)
			require.NoError(t, call())
		}
		assert.Equal(t, 6, g.reads, "one in 250 ms, when a call comes")
		g.cpu = 0.9
		for range 8 { // 0.8 is reached by an average of 0.9 after 1.1 s
			time.Sleep(100 * ms)
			require.NoError(t, call())
		}
		time.Sleep(500 * ms)
		err := call()
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, policy.ReasonConcurrency, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrOverloaded)
		assert.EqualError(t, re.Err, "ratelimit: overloaded: hardly any CPU left")
		l := loadOf(t, s)
		assert.True(t, l.Overloaded)
		assert.InDelta(t, 0.9*(1-math.Exp(-2.6)), l.CPU, 0.03)
		assert.Equal(t, 1, l.InFlight)
		assert.Equal(t, [4]uint64{0, 1, 0, 0}, l.Shed)

		g.cpu = 0
		time.Sleep(499 * ms)
		require.Error(t, call(), "it was read as less, but the limit has hardly risen")
		time.Sleep(500 * ms)
		assert.True(t, loadOf(t, s).Overloaded)
		time.Sleep(500 * ms)
		assert.False(t, loadOf(t, s).Overloaded, "for a second there was no sign, and nobody was refused")
		require.NoError(t, call())

		g.delay = 25 * ms
		for range 20 {
			time.Sleep(250 * ms)
			err = call()
		}
		require.ErrorAs(t, err, &re)
		assert.EqualError(t, re.Err, "ratelimit: overloaded: work waits for too long")
		assert.InDelta(t, 25*ms, loadOf(t, s).Delay, float64(ms))
	})
}

// A reading that fails says nothing.
func TestSystemReadingFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{err: errors.New("no such file")}
		s := newShedder(t, ratelimit.System{CPU: g.readCPU, Delay: g.readDelay})
		for _, cpu := range []float64{1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			g.cpu = cpu
			for range 10 {
				time.Sleep(time.Second)
				require.NoError(t, s.Acquire(time.Now(), policy.PriorityLow))
			}
			g.err = nil
		}
		l := loadOf(t, s)
		assert.Equal(t, uint64(2*10+3*10), l.Failed)
		assert.InDelta(t, 0, l.CPU, 0)
		g.cpu, g.delay = -5, -time.Second
		time.Sleep(time.Second)
		require.NoError(t, s.Acquire(time.Now(), policy.PriorityLow))
		assert.InDelta(t, 0, loadOf(t, s).CPU, 0)
	})
}

// server has a number of processors, and queues what is beyond them.
type server struct {
	slots   chan struct{}
	service time.Duration

	mu     sync.Mutex
	busy   time.Duration // of all processors
	waits  []time.Duration
	at     time.Time
	before time.Duration
}

func newServer(processors int, service time.Duration) *server {
	return &server{slots: make(chan struct{}, processors), service: service, at: time.Now()}
}

func (s *server) serve() {
	began := time.Now()
	s.slots <- struct{}{}
	s.mu.Lock()
	s.waits = append(s.waits, time.Since(began))
	s.mu.Unlock()
	time.Sleep(s.service)
	<-s.slots
	s.mu.Lock()
	s.busy += s.service
	s.mu.Unlock()
}

// cpu is the share of processor time used since it was last called.
func (s *server) cpu() (float64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, passed := s.busy-s.before, time.Since(s.at)*time.Duration(cap(s.slots))
	s.before, s.at = s.busy, time.Now()
	return float64(used) / float64(passed), nil
}

// delay is the longest wait of those that began to be served since it was last called.
func (s *server) delay() (longest time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waits {
		longest = max(longest, w)
	}
	s.waits = nil
	return longest, nil
}

// Three times what a server can do: with shedding it does what it can, without keeping
// anybody waiting for long, and those of high priority are served first. Without, nobody
// is served in time.
func TestSystemUnderOverload(t *testing.T) {
	t.Parallel()
	type result struct{ offered, served, inTime int }
	run := func(t *testing.T, shed bool, signal string) (results [4]result, most int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(4, 10*ms) // 400 calls a second
			var policies []policy.Policy
			if shed {
				cfg := ratelimit.System{CPU: srv.cpu, MinInFlight: 4, MaxDelay: ratelimit.NoDelay}
				if signal == "delay" {
					cfg = ratelimit.System{Delay: srv.delay, MaxDelay: 15 * ms, MinInFlight: 4}
				}
				policies = append(policies, cfg)
			}
			p := newPipeline(t, policies...)
			// Of ten calls one is critical, two are of high, four of normal and three
			// of low priority.
			mix := []policy.Priority{2, 1, 1, 0, 0, 0, 0, -1, -1, -1}
			var mu sync.Mutex
			var wg sync.WaitGroup
			var inFlight atomic.Int64
			const seconds, settle = 20, 5
			start := time.Now()
			for i := range 1200 * seconds {
				prio := mix[(i*7)%10]
				late := time.Since(start) > settle*time.Second
				wg.Go(func() {
					began := time.Now()
					_, err := policy.Do(policy.WithPriority(t.Context(), prio), p, func(context.Context) (int, error) {
						n := int(inFlight.Add(1))
						defer inFlight.Add(-1)
						mu.Lock()
						most = max(most, n)
						mu.Unlock()
						srv.serve()
						return 1, nil
					})
					if !late {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					r := &results[prio+1]
					r.offered++
					if err == nil {
						r.served++
						if time.Since(began) <= 100*ms {
							r.inTime++
						}
					}
				})
				time.Sleep(time.Second / 1200)
			}
			wg.Wait()
		})
		return results, most
	}
	for _, signal := range []string{"cpu", "delay"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			got, _ := run(t, true, signal)
			t.Logf("low, normal, high, critical: %+v", got)
			sum := 0
			for _, r := range got {
				sum += r.inTime
				assert.GreaterOrEqual(t, r.inTime*100, r.served*97, "who is let in is served in time")
			}
			assert.GreaterOrEqual(t, sum, 15*400*85/100, "no collapse: it does most of what it can")
			for _, r := range got[2:] { // 360 a second of these two
				assert.GreaterOrEqual(t, r.inTime*100, r.offered*90)
			}
			assert.Less(t, got[0].served*10, got[0].offered, "those of low priority have to wait for better times")
		})
	}
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		got, _ := run(t, false, "")
		for _, r := range got {
			assert.Zero(t, r.inTime)
		}
	})
}

func TestSystemGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{cpu: 1}
		d := &door{enter: func() error { return nil }}
		s := newShedder(t, ratelimit.System{Name: "shed", CPU: g.readCPU, MaxDelay: ratelimit.NoDelay, MinInFlight: 1})
		p := newPipeline(t, s, d)
		ctx := policy.WithPriority(t.Context(), policy.PriorityHigh)
		time.Sleep(10 * time.Second) // the average is 1 with the next reading
		h, err := p.Enter(ctx)
		require.NoError(t, err)
		_, err = policy.Do(ctx, p, succeed)
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, "shed", re.Policy)
		require.ErrorIs(t, err, ratelimit.ErrOverloaded)
		time.Sleep(100 * ms)
		h.Settle(policy.Success, 0)
		_, err = policy.Do(ctx, p, succeed)
		require.Error(t, err, "the call is settled, but not released")
		time.Sleep(100 * ms)
		h.Release()
		assert.Zero(t, loadOf(t, s).InFlight)

		d.enter = refuse
		_, err = policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, errShut)
		d.enter = func() error { panic("broken gate") }
		assert.Panics(t, func() { _, _ = policy.Do(ctx, p, succeed) })
		d.enter = func() error { return nil }
		assert.Panics(t, func() { _, _ = policy.Do(ctx, p, func(context.Context) (int, error) { panic("broken call") }) })
		assert.Zero(t, loadOf(t, s).InFlight, "whatever becomes of a call, it ends")

		ps := p.Snapshot().Policies[0]
		assert.Equal(t, "system", ps.Kind)
		assert.Equal(t, uint64(2), ps.Rejected[policy.ReasonConcurrency])
		assert.Equal(t, [4]uint64{0, 0, 2, 0}, ps.Limiter.Load.Shed)
		assert.Equal(t, 1, ps.Limiter.Load.Limit)
	})
}

func TestSystemPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{cpu: 1}
		d := &door{enter: func() error { return nil }, waits: true}
		s := newShedder(t, ratelimit.System{CPU: g.readCPU, MaxDelay: ratelimit.NoDelay, MinInFlight: 1})
		p := newPipeline(t, d, s)
		time.Sleep(10 * time.Second)
		require.NoError(t, s.Acquire(time.Now(), policy.PriorityNormal))
		_, err := policy.Do(t.Context(), p, succeed)
		require.ErrorIs(t, err, ratelimit.ErrOverloaded)
		assert.Zero(t, d.entered)
	})
}

func TestSystemShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{cpu: 1}
		p := newPipeline(t, ratelimit.System{CPU: g.readCPU, MaxDelay: ratelimit.NoDelay, MinInFlight: 1, Shadow: true})
		time.Sleep(10 * time.Second)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Rejected[policy.ReasonConcurrency])
		h.Release()
	})
}

// What the Go scheduler says is read when nothing else is given.
func TestSystemZeroValue(t *testing.T) {
	t.Parallel()
	s := newShedder(t, ratelimit.System{Sample: time.Millisecond})
	now := time.Now()
	for i := range 100 {
		require.NoError(t, s.Acquire(now.Add(time.Duration(i)*ms), policy.PriorityCritical))
		s.Release(now, policy.PriorityCritical, 0)
	}
	l := loadOf(t, s)
	assert.Zero(t, l.Failed)
	assert.GreaterOrEqual(t, l.Delay, time.Duration(0))
}

func TestSystemValidate(t *testing.T) {
	t.Parallel()
	g := &gauge{}
	for _, tt := range []struct {
		name string
		cfg  ratelimit.System
		want []string
	}{
		{"zero", ratelimit.System{}, nil},
		{"everything", ratelimit.System{
			Name: "shed", CPU: g.readCPU, MaxCPU: 1, Delay: g.readDelay, MaxDelay: time.Second, Sample: time.Millisecond,
			CoolDown: time.Minute, Window: 100 * ms, MinInFlight: 1 << 30, Shadow: true,
		}, nil},
		{"CPU alone", ratelimit.System{CPU: g.readCPU, MaxDelay: ratelimit.NoDelay}, nil},
		{"nothing to look at", ratelimit.System{MaxDelay: ratelimit.NoDelay}, []string{"MaxDelay"}},
		{"a bound of nothing", ratelimit.System{MaxCPU: 0.5}, []string{"MaxCPU"}},
		{"not a number", ratelimit.System{CPU: g.readCPU, MaxCPU: math.NaN()}, []string{"MaxCPU"}},
		{"a delay that is not looked at", ratelimit.System{CPU: g.readCPU, Delay: g.readDelay, MaxDelay: ratelimit.NoDelay}, []string{"Delay"}},
		{
			"all at once",
			ratelimit.System{MaxCPU: -1, MaxDelay: -2, Sample: time.Microsecond, CoolDown: -1, Window: ms, MinInFlight: -1},
			[]string{"MaxCPU", "MaxDelay", "Sample", "CoolDown", "Window", "MinInFlight"},
		},
		{"too large", ratelimit.System{CPU: g.readCPU, MaxCPU: 1.1, Sample: -1, Window: -1, MinInFlight: 1<<30 + 1}, []string{"MaxCPU", "Sample", "Window", "MinInFlight"}},
	} {
		assert.Equal(t, tt.want, faultsOf(t, "system", tt.cfg.Validate()), tt.name)
		s, err := ratelimit.NewSystem("", tt.cfg)
		assert.Equal(t, tt.want, faultsOf(t, "system", err), tt.name)
		assert.Equal(t, tt.want == nil, s != nil, tt.name)
	}
	_, err := policy.New("inbound", ratelimit.System{Name: "shed", MinInFlight: -1})
	assert.EqualError(t, err, "inbound.shed.MinInFlight: -1: want 1 to 1073741824, or 0 (GOMAXPROCS)")
}

func TestSystemConfigIsEffective(t *testing.T) {
	t.Parallel()
	assert.Equal(t, ratelimit.System{
		Name: "system", MaxDelay: 20 * ms, Sample: 250 * ms, CoolDown: time.Second, Window: 10 * time.Second, MinInFlight: runtime.GOMAXPROCS(0),
	}, newShedder(t, ratelimit.System{}).Config())
	g := &gauge{}
	s, err := ratelimit.NewSystem("a", ratelimit.System{Name: "b", CPU: g.readCPU})
	require.NoError(t, err)
	cfg := s.Config()
	assert.Equal(t, "a", cfg.Name)
	assert.InDelta(t, 0.8, cfg.MaxCPU, 0)
	require.NoError(t, cfg.Validate())
}
