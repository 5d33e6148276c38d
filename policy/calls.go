package policy

import "context"

// CallWatcher is told of calls. A [Retrier] whose budget depends on which calls are in
// flight, on which succeed, or on which of them are part of another, hands one over
// beside itself ([Part.Calls]). It is on the path of every call, so a Retrier that does
// not need it should not. All methods are called concurrently.
//
// Attempts that are entered by hand are not calls.
type CallWatcher interface {
	// Begin is told of each call, before its gates are asked. It returns the context
	// that the call runs under: ctx, or one made of it.
	Begin(ctx context.Context) context.Context

	// End is told once of each call that Begin was told of, when the outcome of its
	// last attempt is known and before a fallback is asked. ctx is what Begin
	// returned. A call that does not return (a panic, [runtime.Goexit]) ends as
	// [NotRun].
	End(ctx context.Context, k Kind)

	// Spent is told of the end of each attempt for which Decide took something,
	// unless Undo is.
	Spent()
}

// Context returns the context of the attempt: the caller's, made smaller by what of the
// pipeline has bounded it so far.
func (a *Attempt) Context() context.Context { return a.ctx }

// spent is called when an attempt has run: what it cost does not come back.
func (s *callState) spent() {
	if s.paid {
		s.paid = false
		if s.plan.calls != nil {
			s.plan.calls.Spent()
		}
	}
}

// over is called when the outcome of the call is known, or never will be.
func (s *callState) over() {
	if s.watched {
		s.watched = false
		s.plan.calls.End(s.outer, s.out.Kind)
	}
}
