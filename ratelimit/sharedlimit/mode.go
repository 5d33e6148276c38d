package sharedlimit

import (
	"context"
	"log/slog"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// mode returns the name of the present mode.
func (l *Limiter) mode() string {
	switch {
	case l.s.LocalOnly:
		return policy.SharedModeLocal
	case l.away.Load():
		return l.s.StandIn.String()
	}
	return policy.SharedModeShared
}

// Subscribe implements [policy.Emitter]: fn is told of each change of mode.
func (l *Limiter) Subscribe(fn func(policy.Event)) (cancel func()) { return l.events.Subscribe(fn) }

// guardChanged is told of each change of the breaker's state, in order.
func (l *Limiter) guardChanged(c breaker.StateChange) {
	switch c.To {
	case breaker.Open.String():
		if !l.away.Swap(true) {
			l.tell(policy.SharedModeShared, l.s.StandIn.String(), "errors", c)
		}
		l.probeAfter(probeEvery)
	case breaker.Closed.String():
		l.warmup.Store(l.now() + int64(l.fill()))
		if l.away.Swap(false) {
			l.tell(l.s.StandIn.String(), policy.SharedModeShared, "probe", c)
		}
	}
}

// tell reports a change of mode.
func (l *Limiter) tell(from, to, why string, c breaker.StateChange) {
	l.changed.Store(l.now())
	change := c.StateChange
	change.From, change.To, change.Why = from, to, why
	l.events.Queue(policy.Event{Kind: policy.EventStateChange, Time: time.Now(), Policy: l.name, Change: change})
	l.events.Flush()
	if l.s.Logger != nil {
		level := slog.LevelInfo
		if to != policy.SharedModeShared {
			level = slog.LevelWarn
		}
		l.s.Logger.LogAttrs(l.ctx, level, "shared limit changed its mode", slog.String("policy", l.name),
			slog.String("from", from), slog.String("to", to), slog.String("why", why), slog.Int64("nodes", l.nodes.Load()))
	}
}

// probeAfter sets the timer of the next probe.
func (l *Limiter) probeAfter(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
	case l.probes == nil:
		l.probes = time.AfterFunc(d, l.inBackground(l.probe))
	default:
		l.probes.Reset(d)
	}
}

// inBackground returns f as what a timer may call, until Close.
func (l *Limiter) inBackground(f func()) func() {
	return func() {
		l.mu.Lock()
		if l.stopped {
			l.mu.Unlock()
			return
		}
		l.running.Add(1)
		l.mu.Unlock()
		defer l.running.Done()
		f()
	}
}

// probe finds out whether the store can be asked again. What follows, guardChanged does.
func (l *Limiter) probe() {
	permit, err := l.guard.Acquire()
	if err != nil {
		if l.away.Load() { // a timer that was early
			l.probeAfter(probeEvery / 10)
		}
		return
	}
	kind := policy.Failure
	defer func() { permit.Done(kind) }()
	ctx, cancel := context.WithTimeout(l.ctx, l.s.Timeout)
	defer cancel()
	sent := l.now()
	l.trips.Add(1)
	kind = l.told(l.ctx, time.Duration(l.now()-sent), l.store.Probe(ctx))
	if kind == policy.Canceled { // Close
		kind = policy.NotRun
	}
}

// startCounting begins to count the processes, with the first call: a limit that was made for
// a pipeline which was refused then has nothing to be closed.
func (l *Limiter) startCounting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped && !l.counting.Swap(true) {
		l.running.Add(1)
		go l.count()
	}
}

// count keeps the number of processes up to date.
func (l *Limiter) count() {
	defer l.running.Done()
	ticker := time.NewTicker(l.s.Heartbeat)
	defer ticker.Stop()
	for {
		ctx, cancel := context.WithTimeout(l.ctx, max(l.s.Timeout, l.s.Heartbeat))
		if n, err := l.census.Nodes(ctx); err == nil && n > 0 {
			l.setNodes(min(n, maxNodes))
		}
		cancel()
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// Close gives back what was taken ahead, and ends what runs in the background. Calls are
// refused from then on. What ctx leaves no time for expires in the store by itself.
func (l *Limiter) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return nil
	}
	l.stopped = true
	for _, t := range []*time.Timer{l.probes, l.sweeper} {
		if t != nil {
			t.Stop()
		}
	}
	l.mu.Unlock()
	l.closed.Store(true)
	l.cancel()
	l.running.Wait() // each is bounded by Timeout
	if !l.away.Load() && !l.s.LocalOnly {
		l.table.all(func(e *entry) {
			e.mu.Lock()
			e.expire(l.now())
			n := e.lease.n + e.next.n + e.credit.n + e.lapsed
			e.lease, e.next, e.credit, e.lapsed = hold{}, hold{}, hold{}, 0
			e.mu.Unlock()
			l.returnTokens(ctx, e, n)
		})
	}
	if l.counting.Load() {
		tctx, cancel := context.WithTimeout(ctx, l.s.Timeout)
		_ = l.census.Leave(tctx) // others find out by themselves, only later
		cancel()
	}
	if c, ok := l.store.(policy.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}

// returnTokens gives tokens back to the store. That they get there is not worth an error:
// otherwise they arrive anew in time.
func (l *Limiter) returnTokens(ctx context.Context, e *entry, n int) {
	if n <= 0 || ctx.Err() != nil {
		return
	}
	tctx, cancel := context.WithTimeout(ctx, l.s.Timeout)
	defer cancel()
	l.trips.Add(1)
	if err := l.store.GiveBack(tctx, &Request{Keys: e.keys}, n); err != nil {
		l.failed.Add(1)
	}
}
