package redislimit

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// carrier carries commands to a server. As long as there are connections each goes alone and
// at once. Those that would have to wait for a connection wait for the next that is back, and
// then go together, as one pipeline: one trip for all. Whoever of them has the most time left
// carries it, so there is no goroutine.
type carrier struct {
	most int // carried at a time; zero means that all go alone

	mu      sync.Mutex
	flying  int
	waiting []*parcel
}

// maxTogether bounds a pipeline.
const maxTogether = 128

// parcel is a command that waits. Its channel is closed when it was carried; what is sent on
// it before are those that its owner has to carry, itself among them.
type parcel struct {
	ctx  context.Context //nolint:containedctx // of the caller, who waits
	cmd  redis.Cmder
	ch   chan []*parcel
	left bool // its owner does not wait any more; guarded by carrier.mu
}

// carry processes a command. The error is that of ctx when it was done first, and then cmd is
// not the caller's any more; any other error is the command's own.
func (c *carrier) carry(ctx context.Context, client redis.UniversalClient, cmd redis.Cmder) error {
	if c.most == 0 {
		_ = client.Process(ctx, cmd) // the error is the command's
		return nil
	}
	c.mu.Lock()
	if c.flying < c.most {
		c.flying++
		c.mu.Unlock()
		defer c.landed() // also when a hook of the client panics
		_ = client.Process(ctx, cmd)
		return nil
	}
	p := &parcel{ctx: ctx, cmd: cmd, ch: make(chan []*parcel, 1)}
	c.waiting = append(c.waiting, p)
	c.mu.Unlock()
	select {
	case batch, carrying := <-p.ch:
		if carrying {
			c.together(ctx, client, batch)
		}
		return nil
	case <-ctx.Done():
		c.leave(p)
		return ctx.Err()
	}
}

// leave takes back a command, unless it is on its way already.
func (c *carrier) leave(p *parcel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.left = true
	c.waiting = slices.DeleteFunc(c.waiting, func(w *parcel) bool { return w == p })
	select {
	case batch, carrying := <-p.ch:
		if carrying { // then somebody else has to
			c.handOverLocked(batch)
		}
	default:
	}
}

// landed goes on with those that wait.
func (c *carrier) landed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextLocked()
}

// nextLocked requires that c.mu is held, and that one of flying is the caller's to give on.
func (c *carrier) nextLocked() {
	n := min(len(c.waiting), maxTogether)
	if n == 0 {
		c.flying--
		return
	}
	batch := c.waiting[:n:n]
	c.waiting = slices.Clone(c.waiting[n:])
	c.handOverLocked(batch)
}

// handOverLocked lets the one with the most time left carry a batch.
func (c *carrier) handOverLocked(batch []*parcel) {
	batch = slices.DeleteFunc(batch, func(p *parcel) bool { return p.left })
	if len(batch) == 0 {
		c.nextLocked()
		return
	}
	by := batch[0]
	for _, p := range batch[1:] {
		if laterThan(p.ctx, by.ctx) {
			by = p
		}
	}
	by.ch <- batch // it has room: nobody is chosen twice
}

// laterThan reports whether a has a later deadline than b.
func laterThan(a, b context.Context) bool {
	at, limited := a.Deadline()
	bt, ok := b.Deadline()
	return ok && (!limited || at.After(bt))
}

// together carries a batch. That the caller who does it gives up is no reason for the others
// to, so only its deadline counts, which is the latest of all.
func (c *carrier) together(ctx context.Context, client redis.UniversalClient, batch []*parcel) {
	defer func() { // also when a hook of the client panics
		for _, p := range batch {
			close(p.ch)
		}
		c.landed()
	}()
	c.mu.Lock()
	batch = slices.DeleteFunc(batch, func(p *parcel) bool { return p.left })
	c.mu.Unlock()
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	if len(batch) == 1 {
		_ = client.Process(ctx, batch[0].cmd)
		return
	}
	pipe := client.Pipeline()
	for _, p := range batch {
		_ = pipe.Process(ctx, p.cmd) // it is only added
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
