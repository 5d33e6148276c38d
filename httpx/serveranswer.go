package httpx

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// statusClientGone is nginx's. Nobody is there to read it, but whoever logs the status, and a
// client that is there after all, must not take silence for success.
const statusClientGone = 499

// ErrorEvent is an error that was answered.
type ErrorEvent struct {
	Request *http.Request // as the handler got it
	Route   string        // what ServerConfig.Route said
	Lane    string        // the lane, or the part of a limit, that refused; else what ServerConfig.Lane said
	Status  int           // that was sent; 499 when the client was gone
	Err     error         // what was answered

	// Refusal is the refusal in Err, and nil where it is none.
	Refusal *policy.RejectedError

	// Begun says that the answer had begun before the error came, with Status, so that
	// the client was not told.
	Begun bool
}

// LogValue lists what a log line needs: status, method and route, of a refusal dependency,
// policy, reason, lane and retry_after, and else the error.
func (e ErrorEvent) LogValue() slog.Value {
	list := make([]slog.Attr, 0, 8)
	list = append(list, slog.Int("status", e.Status), slog.String("method", e.Request.Method), slog.String("route", e.Route))
	if re := e.Refusal; re != nil {
		list = append(list, slog.String("dependency", re.Dependency), slog.String("policy", re.Policy), slog.String("reason", re.Reason.String()))
		if e.Lane != "" {
			list = append(list, slog.String("lane", e.Lane))
		}
		if re.RetryAfter > 0 && re.RetryAfter != policy.Never {
			list = append(list, slog.Duration("retry_after", re.RetryAfter))
		}
	} else {
		list = append(list, slog.String("error", e.Err.Error()))
	}
	if e.Begun {
		list = append(list, slog.Bool("begun", true))
	}
	return slog.GroupValue(list...)
}

// StatusOf says which status a refusal has by its reason alone: 429 where a rate limit
// refused, whoever's it is, and 503 for all else: no permit, overload, an open breaker, a
// pipeline that is closed. As [ServerConfig] Status it makes a 429 of every rate limit, which
// is right where those below count by user, too.
func StatusOf(re *policy.RejectedError) int {
	if limited(re) {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// limited reports whether a rate limit refused, waits for one included.
func limited(re *policy.RejectedError) bool {
	return re.Reason == policy.ReasonRate || re.Reason == policy.ReasonCost || errors.Is(re.Err, ratelimit.ErrLimited)
}

// rejected returns the refusal that err is: not one that kept a call which has failed from
// another attempt.
func rejected(ctx context.Context, err error) (*policy.RejectedError, bool) {
	if re, ok := err.(*policy.RejectedError); ok { //nolint:errorlint // the way of nearly all, and the shortest
		return re, true
	}
	// A caller who is gone does not make another error of it.
	if policy.Classify(context.WithoutCancel(ctx), err).Kind != policy.NotRun {
		return nil, false
	}
	return errors.AsType[*policy.RejectedError](err)
}

// partOf returns the name of the lane, or of the part of a limit, that refused.
func partOf(re *policy.RejectedError) string {
	if re.Err == nil {
		return ""
	}
	if part, ok := errors.AsType[*ratelimit.PartError](re.Err); ok {
		return part.Part
	}
	return ""
}

// WriteError answers with an error of a handler, and with its Retry-After where another try
// makes sense:
//
//   - a refusal: 429 where a limit of the server's own refused, otherwise 503 (see
//     [ServerConfig] Status)
//   - a [*Problem], also deep inside: what it says
//   - the client is gone: 499, for logs, without a body
//   - a deadline has passed: 504
//   - marked by [policy.AsBusy] or [policy.AsThrottled]: 503
//   - anything else: 500
//
// The text of the error is not sent. The [Server] around the handler is told of it, and
// decides how the answer looks; without one it is that of a zero ServerConfig. Where the
// answer has begun already, nothing is written, and a success that was told is corrected. A nil
// error does nothing.
//
// It finds the Server through the Unwrap methods of w, which writers of middleware should
// have ([http.ResponseController] needs them too).
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	x := innermost(w)
	s := unconfigured
	if x != nil {
		s = x.s
	}
	s.answer(w, x, r, err)
}

// ProblemOf returns the answer to an error as [WriteError] gives it without a [Server], for servers
// that are not made of net/http. Its Status is that of [StatusOf] for a refusal, and 499 where ctx
// is canceled, the client being gone. It is nil for a nil error.
func ProblemOf(ctx context.Context, err error) *Problem {
	if err == nil {
		return nil
	}
	var p Problem
	if canceled(ctx) {
		p.Status = statusClientGone
	} else {
		re, _ := rejected(ctx, err)
		p, _ = unconfigured.describe(ctx, nil, err, re)
		p.Status = p.status()
	}
	p.Err = err
	return &p
}

// unconfigured answers where no server is around.
var unconfigured = &Server{}

// A HandlerFunc is a [http.Handler] that may fail. Its error is answered as [WriteError]
// does. If the answer has begun, the connection is broken off ([http.ErrAbortHandler]), so that
// the client does not take half an answer for a whole one.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements [http.Handler].
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	WriteError(w, r, err)
	if x := innermost(w); x != nil && x.late {
		for o := x; o != nil; o = o.outer() {
			o.aborted = true
		}
		panic(http.ErrAbortHandler) //nolint:forbidigo // it is how net/http wants to be told
	}
}

// answer writes the answer to an error; x is nil where no server is around.
func (s *Server) answer(w http.ResponseWriter, x *served, r *http.Request, err error) {
	if x != nil && x.r != nil {
		r = x.r
	}
	e := ErrorEvent{Request: r, Err: err}
	if x != nil {
		e.Route, e.Lane = x.route, x.lane
	}
	if re, ok := rejected(r.Context(), err); ok {
		e.Refusal = re
		if part := partOf(re); part != "" {
			e.Lane = part
		}
	}
	if x != nil && x.begun {
		x.tooLate(r.Context(), err)
		e.Status, e.Begun = x.status, true
	} else {
		for o := x; o != nil; o = o.outer() {
			o.err = err
		}
		p, body := s.problem(x, r, err, e.Refusal)
		if x != nil && x.known != nil && p.RetryAfter < 0 {
			w.Header().Set(hop.PushbackHeader, hop.FormatPushback(-1))
		}
		if s.tells(x, e.Refusal) {
			s.tellQuotas(r.Context(), x, w.Header(), e.Refusal)
		}
		p.write(w, r, body)
		e.Status = p.status()
	}
	if s.cfg.OnError != nil {
		s.cfg.OnError(e)
	}
}

// tells reports whether the answer to a refusal carries the RateLimit fields: where they are for
// all answers, those of requests that were let in have them already.
func (s *Server) tells(x *served, re *policy.RejectedError) bool {
	switch {
	case x == nil, re == nil, !s.owns(re.Dependency), re.Dependency != x.p.Name():
		return false
	case s.cfg.RateLimit == RateLimitAlways:
		return true
	default:
		return s.cfg.RateLimit == RateLimitRefused && limited(re)
	}
}

// tooLate notes an error that comes when the answer has begun. The servers around it have let
// the same answer begin.
func (x *served) tooLate(ctx context.Context, err error) {
	gone := canceled(ctx)
	x.late = !gone && !x.hijacked
	for o := x; o != nil && !gone; o = o.outer() {
		if kind := o.p.Classify(ctx, err).Kind; kind != policy.NotRun {
			o.h.Amend(kind)
		}
	}
}

// problem says how an error is answered.
func (s *Server) problem(x *served, r *http.Request, err error, re *policy.RejectedError) (Problem, []byte) {
	if canceled(r.Context()) {
		return Problem{Status: statusClientGone}, nil
	}
	p, body := s.describe(r.Context(), x, err, re)
	if s.cfg.Body == BodyNone {
		return p, nil
	}
	if body == nil {
		body = p.body()
	}
	return p, body
}

// describe returns a problem and, if it is there already, its body.
func (s *Server) describe(ctx context.Context, x *served, err error, re *policy.RejectedError) (Problem, []byte) {
	if bare := re != nil && err == error(re); !bare { //nolint:errorlint // a bare one has no problem in it
		if p, ok := errors.AsType[*Problem](err); ok {
			return *p, nil
		}
	}
	if re != nil {
		return s.refusal(ctx, x, re)
	}
	o := policy.Classify(ctx, err)
	switch o.Kind { //nolint:exhaustive // the others are the default
	case policy.Timeout:
		return Problem{Status: http.StatusGatewayTimeout}, nil
	case policy.Busy, policy.Throttled:
		p := reducedCapacity
		p.RetryAfter = o.Pushback
		return p, reducedCapacityBody
	}
	return Problem{}, nil
}

// refusal says how a refusal is answered.
func (s *Server) refusal(ctx context.Context, x *served, re *policy.RejectedError) (p Problem, body []byte) {
	switch status := s.status(x, re); status {
	case http.StatusTooManyRequests:
		p, body = quotaExceeded, quotaExceededBody
	case http.StatusServiceUnavailable:
		p, body = reducedCapacity, reducedCapacityBody
	default:
		p = Problem{Status: status}
	}
	p.RetryAfter = re.RetryAfter
	if re.RetryAfter == policy.Never {
		p.RetryAfter = -1
	}
	if s.cfg.Expose {
		p.Detail = re.Error()
		p.Members = map[string]any{"dependency": re.Dependency, "policy": re.Policy, "reason": re.Reason.String()}
		if x != nil && limited(re) && s.owns(re.Dependency) {
			p.Members["violated-policies"] = []string{violated(re)}
			p.Members["limits"] = exposedQuotas(x.p.Quotas(ctx, &x.call, nil))
		}
		return p, nil
	}
	return p, body
}

// status returns the status of a refusal. A limit further down is mostly a quota of ours,
// which is nothing that the client has used up.
func (s *Server) status(x *served, re *policy.RejectedError) int {
	if s.cfg.Status != nil {
		if status := s.cfg.Status(re); status != 0 {
			return status
		}
	}
	if x == nil {
		return StatusOf(re)
	}
	for o := x; o != nil; o = o.outer() {
		if o.s.owns(re.Dependency) {
			return StatusOf(re)
		}
	}
	return http.StatusServiceUnavailable
}
