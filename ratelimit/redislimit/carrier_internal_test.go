package redislimit

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gatekeeper holds up commands, and remembers how long the pipelines were.
type gatekeeper struct {
	hold chan struct{} // a value lets one command through
	held chan struct{}

	panicsInPipes atomic.Bool

	mu    sync.Mutex
	pipes []int
}

func (g *gatekeeper) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (g *gatekeeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" {
			g.held <- struct{}{}
			<-g.hold
		}
		return next(ctx, cmd)
	}
}

func (g *gatekeeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.mu.Lock()
		g.pipes = append(g.pipes, len(cmds))
		g.mu.Unlock()
		if g.panicsInPipes.Load() {
			panic("a hook")
		}
		return next(ctx, cmds)
	}
}

// carried returns a carrier for one command at a time, which one is held up already.
func carried(t *testing.T) (*carrier, redis.UniversalClient, *gatekeeper, func()) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	g := &gatekeeper{hold: make(chan struct{}), held: make(chan struct{}, 1)}
	client.AddHook(g)
	c := &carrier{most: 1}
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.carry(t.Context(), client, redis.NewCmd(t.Context(), "get", "x")) })
	<-g.held
	return c, client, g, func() {
		close(g.hold)
		wg.Wait()
	}
}

func (c *carrier) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// nothingLeft says that all places are free.
func (c *carrier) nothingLeft(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Zero(t, c.flying)
	assert.Empty(t, c.waiting)
}

// until waits for what other goroutines are about to do.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}

// Commands that find no connection free make one trip together, and each gets its answer.
func TestCommandsThatWaitTravelTogether(t *testing.T) {
	t.Parallel()
	c, client, g, release := carried(t)
	var wg sync.WaitGroup
	var sum atomic.Int64
	for range 20 {
		wg.Go(func() {
			cmd := redis.NewCmd(t.Context(), "incr", "n")
			assert.NoError(t, c.carry(t.Context(), client, cmd))
			n, err := cmd.Int64()
			assert.NoError(t, err)
			sum.Add(n)
		})
	}
	until(t, "all wait", func() bool { return c.queued() == 20 })
	release()
	wg.Wait()
	assert.EqualValues(t, 20*21/2, sum.Load())
	assert.Equal(t, []int{20}, g.pipes)
	c.nothingLeft(t)
}

// Whoever gives up gets the error of its context at once, and its command is not sent.
func TestCommandOfOneWhoLeftIsNotSent(t *testing.T) {
	t.Parallel()
	c, client, g, release := carried(t)
	var wg sync.WaitGroup
	impatient, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { gone <- c.carry(impatient, client, redis.NewCmd(impatient, "incr", "n")) }()
	for range 2 {
		wg.Go(func() {
			assert.NoError(t, c.carry(t.Context(), client, redis.NewCmd(t.Context(), "incr", "n")))
		})
	}
	until(t, "all wait", func() bool { return c.queued() == 3 })
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	release()
	wg.Wait()
	assert.Equal(t, []int{2}, g.pipes)
	c.nothingLeft(t)
}

// One who was chosen to carry and left in the same instant hands over, to nobody who has left.
func TestCarrierIsHandedOver(t *testing.T) {
	t.Parallel()
	c := &carrier{most: 1, flying: 1}
	all := make([]*parcel, 3)
	for i := range all {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Hour)
		defer cancel()
		all[i] = &parcel{ctx: ctx, ch: make(chan []*parcel, 1)}
		c.waiting = append(c.waiting, all[i])
	}
	c.landed()
	require.Len(t, all[2].ch, 1, "the one with the most time")
	c.leave(all[1])
	c.leave(all[2])
	require.Equal(t, []*parcel{all[0]}, <-all[0].ch)
	all[0].ch <- []*parcel{all[0]}
	c.leave(all[0])
	c.nothingLeft(t)
}

// A hook that panics takes no place with it, and keeps nobody waiting.
func TestCarrierOutlivesAPanic(t *testing.T) {
	t.Parallel()
	c, client, g, release := carried(t)
	var wg sync.WaitGroup
	var panics atomic.Int64
	for range 5 {
		wg.Go(func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			_ = c.carry(t.Context(), client, redis.NewCmd(t.Context(), "incr", "n"))
		})
	}
	until(t, "all wait", func() bool { return c.queued() == 5 })
	g.panicsInPipes.Store(true)
	release()
	wg.Wait()
	assert.EqualValues(t, 1, panics.Load(), "that of who carries")
	c.nothingLeft(t)
}

func TestCarrierConcurrentSafe(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	c := &carrier{most: 2}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
				cmd := redis.NewCmd(ctx, "incr", "n")
				if c.carry(ctx, client, cmd) == nil {
					_, _ = cmd.Result()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	c.nothingLeft(t)
	cmd := redis.NewCmd(t.Context(), "incr", "n")
	require.NoError(t, c.carry(t.Context(), client, cmd))
	require.NoError(t, cmd.Err())
}

// Among callers that leave at any time each gets its own answer or its own error, and whoever
// has time left gets an answer.
func TestCarrierAnswersEachItsOwn(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	c := &carrier{most: 2}
	var wg sync.WaitGroup
	for caller := range 24 {
		wg.Go(func() {
			for i := range 100 {
				impatient := caller%3 > 0
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if impatient && caller%2 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
				} else if impatient {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rand.IntN(1000))*time.Microsecond)
				}
				want := strconv.Itoa(caller) + "-" + strconv.Itoa(i)
				cmd := redis.NewCmd(ctx, "echo", want)
				if caller%8 == 7 {
					cmd = redis.NewCmd(ctx, "echo") // an error of its own
				}
				switch err := c.carry(ctx, client, cmd); {
				case err != nil:
					assert.True(t, impatient, "%v, though there is time", err)
					assert.ErrorIs(t, err, ctx.Err())
				case caller%8 == 7:
					assert.Error(t, cmd.Err())
				case cmd.Err() == nil:
					assert.Equal(t, want, cmd.Val())
				default:
					assert.True(t, impatient, "%v, though there is time", cmd.Err())
					assert.NotContains(t, cmd.Err().Error(), "wrong number", "another's error")
				}
				cancel()
			}
		})
	}
	wg.Wait()
	c.nothingLeft(t)
}
