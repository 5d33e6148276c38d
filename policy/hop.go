package policy

import (
	"context"
	"sync/atomic"
)

// Hop is what a service knows of the call that it serves, as far as it concerns
// retries: whether a layer above it is retrying already, and whether it has retried
// itself, in vain. Layers that tell each other do not multiply: of three layers that
// make three attempts each, the lowest is called 3 times and not 27.
//
// An adapter on the server's side makes one of what came with a request that it
// trusts, and puts it into the request's context with [WithHop]. Every pipeline that
// is called under that context obeys it and tells it. It is safe for concurrent use.
// A nil Hop knows nothing.
type Hop struct {
	attempt int
	spent   atomic.Bool
}

// NewHop returns the Hop of a request that is the given attempt, from 1, counted over
// all the layers above. Numbers below 1 count as 1.
func NewHop(attempt int) *Hop { return &Hop{attempt: max(attempt, 1)} }

// Attempt returns the number of the attempt that the request is, counted over all
// the layers above; 1 where nothing is known.
func (h *Hop) Attempt() int {
	if h == nil {
		return 1
	}
	return h.attempt
}

// IsRetry reports whether a layer above is retrying: the pipelines below it do not.
func (h *Hop) IsRetry() bool { return h.Attempt() > 1 }

// Next returns the number that the given attempt of a call has for the next layer: a
// first attempt under a retry is part of that retry.
func (h *Hop) Next(attempt int) int { return h.Attempt() + max(attempt, 1) - 1 }

// Spend says that a call failed and that another attempt by a layer above would not
// be its first one.
func (h *Hop) Spend() {
	if h != nil && !h.spent.Load() { // a write to a shared line only where it changes something
		h.spent.Store(true)
	}
}

// Spent reports whether a call under this Hop failed although it was retried, or was
// not to be: if the request fails too, the layer above should not retry it. Once true
// it stays so, also when a fallback has answered for that call.
func (h *Hop) Spent() bool { return h != nil && h.spent.Load() }

type hopKey struct{}

// WithHop returns a context whose calls know h.
func WithHop(ctx context.Context, h *Hop) context.Context {
	return context.WithValue(ctx, hopKey{}, h)
}

// HopFrom returns the Hop of the request that is being served under ctx, or nil.
func HopFrom(ctx context.Context) *Hop {
	h, _ := ctx.Value(hopKey{}).(*Hop)
	return h
}

// tellHop says to the layers above what a call that failed means for them: no retry
// where it was retried here, where the budget forbade that, or where the dependency
// asked for none.
func (s *callState) tellHop() {
	if s.ran > 1 || s.out.Pushback < 0 || s.stop == StopBudget {
		HopFrom(s.outer).Spend()
	}
}
