package policy

import "context"

// Priority says which calls matter more when not all can run. The zero value is
// [PriorityNormal].
type Priority int8

// The priorities, from the first to be given up to the last.
const (
	PriorityLow      Priority = -1 // batch work, prefetching
	PriorityNormal   Priority = 0
	PriorityHigh     Priority = 1 // a person waits
	PriorityCritical Priority = 2 // payments, health checks
)

// String returns "low", "normal", "high" or "critical".
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "low"
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	case PriorityCritical:
		return "critical"
	default:
		return "unknown"
	}
}

// Call holds what one call may say about itself. The zero value is an ordinary
// call.
type Call struct {
	// Key is what keyed policies count by, such as a user or a shop.
	Key string

	// Cost is the number of tokens the call takes from a rate limit. Zero and
	// negative mean 1.
	Cost int

	// Priority says how much the call matters.
	Priority Priority

	// NoRetry keeps the call from being tried more than once.
	NoRetry bool

	// Idempotent says that the call may safely reach the dependency twice at the
	// same time.
	Idempotent bool
}

type callKey struct{}

// WithCall returns a context whose calls carry c, in place of whatever an outer
// context said.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, &c)
}

// WithPriority returns a context whose calls have priority p; the rest of what ctx
// says about its calls stays.
func WithPriority(ctx context.Context, p Priority) context.Context {
	c := CallFrom(ctx)
	c.Priority = p
	return WithCall(ctx, c)
}

// CallFrom returns what ctx says about its calls.
func CallFrom(ctx context.Context) Call {
	return *callFrom(ctx)
}

// ordinary is what a context that says nothing says.
var ordinary Call

// callOr returns c, or what ctx says where that is nil.
func callOr(ctx context.Context, c *Call) *Call {
	if c != nil {
		return c
	}
	return callFrom(ctx)
}

func callFrom(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &ordinary
}
