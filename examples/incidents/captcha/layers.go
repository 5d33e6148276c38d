package captcha

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// change: the rate goes from 1/s to 10/s and back while 100 requests a second come in, and
// is set anew ten times a second.
func change(w *replay.World, r *replay.Result) {
	ctx, registry := context.Background(), new(policy.Registry)
	w.AtEnd(func() { w.Must(registry.Close(ctx)) })
	manager, err := config.NewManager(ctx, config.ManagerConfig{
		Registry: registry, Logger: quiet(),
		Sources: []config.Source{config.Bytes("breakwater.yaml", config.LayerFile, afterYAML), config.Flags(perSecond...)},
	})
	w.Must(err)
	w.AtEnd(manager.Close)
	p, _ := registry.Get("captcha")
	s := newSite(200, newAfter(newStore(0), p, quiet()))
	replay.Traffic{Every: replay.PerSecond(100), Length: 30 * time.Second}.Offer(func(i int) {
		if i%10 == 0 {
			rates := [2]string{"1/s", "60/min"} // the same, but a change
			if i/1000 == 1 {
				rates = [2]string{"10/s", "600/min"}
			}
			_, err := manager.Set(ctx, "captcha.ratelimit.Rate", rates[i/10%2], 0, "")
			w.Must(err)
		}
		s.get()
	})
	served := s.pictures.PerSecond(30, replay.Served)
	r.Row("rate changed to 10/s and back, set anew 300 times: at 1/s", replay.None, replay.Near(replay.Sum(served[:10]), 10, 1))
	r.Row("  at 10/s", replay.None, replay.Near(replay.Sum(served[10:20]), 100, 1))
	r.Row("  at 1/s again", replay.None, replay.Near(replay.Sum(served[20:]), 10, 1))
}

// frozen is the Redis of the gateway: it does not answer for 30 s.
type frozen struct{}

func (frozen) answer(ctx context.Context) error {
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Take implements [sharedlimit.Store].
func (f frozen) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	return sharedlimit.Grant{Tokens: r.Want}, f.answer(ctx)
}

// GiveBack implements [sharedlimit.Store].
func (f frozen) GiveBack(ctx context.Context, _ *sharedlimit.Request, _ int) error {
	return f.answer(ctx)
}

// Probe implements [sharedlimit.Store].
func (f frozen) Probe(ctx context.Context) error { return f.answer(ctx) }

// gateway: the layer in front has a limit of its own, for each user and route, which it
// keeps in Redis. It called Redis without a timeout.
func gateway(w *replay.World, r *replay.Result) {
	ctx := context.Background()
	begin := time.Now()
	_, err := frozen{}.Take(ctx, &sharedlimit.Request{Want: 1, Least: 1})
	w.Must(err)
	before := time.Since(begin)

	limit, err := sharedlimit.New("redislimit", "", frozen{},
		[]sharedlimit.Limit{{Name: "user and route", Rate: ratelimit.PerSecond(5), Burst: 5, KeyOf: sharedlimit.ByKey}},
		sharedlimit.Settings{Timeout: 50 * time.Millisecond, StandIn: sharedlimit.LetIn})
	w.Must(err)
	p := w.Pipeline("gateway", limit)
	letIn, longest := 0, time.Duration(0)
	for range 100 {
		begin := time.Now()
		err := policy.Run(policy.WithCall(ctx, policy.Call{Key: "GET /captcha alice"}), p, func(context.Context) error { return nil })
		longest = max(longest, time.Since(begin))
		if err == nil {
			letIn++
		}
	}
	r.Row("gateway in front, its Redis frozen: longest wait", replay.Is(before, 30*time.Second), replay.AtMost(longest, 50*time.Millisecond))
	r.Row("  of 100 requests, let in", replay.None, replay.Is(letIn, 100))
}
