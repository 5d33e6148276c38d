package sharedlimit

import (
	"context"
	"time"
)

// Store keeps the counts. All methods are called concurrently, and must return soon after
// ctx is done.
type Store interface {
	// Take takes tokens from every limit of a request, or from none, in one round
	// trip.
	Take(ctx context.Context, r *Request) (Grant, error)

	// GiveBack gives back n tokens of every limit of a request that were taken ahead
	// and not used. No more is let through for it than if they had not been taken. A
	// store that cannot do so returns nil.
	GiveBack(ctx context.Context, r *Request, n int) error

	// Probe finds out whether Take would be answered. It takes nothing.
	Probe(ctx context.Context) error
}

// Census is a [Store] that counts the processes which use it.
type Census interface {
	// Nodes says that this process is there, and returns how many are.
	Nodes(ctx context.Context) (int, error)

	// Leave says that this process is no longer there.
	Leave(ctx context.Context) error
}

// Request says what to take.
type Request struct {
	// Keys are what the call is counted by, one for each limit, in their order: empty
	// where all calls are counted together.
	Keys []string

	// Want is the number of tokens to take, at least 1. When not as many are there, as
	// many as there are, but no fewer than Least.
	Want, Least int

	// Caps are the largest numbers of tokens, one for each limit, that may be there
	// now; whatever is above is to be taken away. A negative one is none; nil is none
	// for all. They are what keeps a store that has lost its data from letting
	// through at once what was already let through in its absence. A store may
	// ignore them.
	Caps []int
}

// Grant is the answer to a [Request].
type Grant struct {
	// Tokens is the number that was taken, from Least to Want, or 0.
	Tokens int

	// Limit is the index of the limit that has the longest to go, and RetryAfter the
	// time until then, when nothing was taken. 0 is unknown.
	Limit      int
	RetryAfter time.Duration

	// Expires is how long it matters that the tokens were taken: until the bucket
	// would be full in any case, or the window ends. A token that is given back later
	// is worth nothing.
	Expires time.Duration

	// Ends is how long the tokens can be used at all: until their window ends. Zero means
	// that they are of no window.
	Ends time.Duration
}
