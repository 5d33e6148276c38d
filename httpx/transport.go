package httpx

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	errNothing    = errors.New("httpx: the transport returned neither a response nor an error")
	errNoFallback = errors.New("httpx: a fallback answered with a nil response")
)

// RoundTripper is an [http.RoundTripper] that sends requests through a pipeline. It is
// made by [Transport] or [Config.Transport] and safe for concurrent use.
type RoundTripper struct {
	cfg     Config
	p       *policy.Pipeline
	next    http.RoundTripper    // nil is http.DefaultTransport
	discard func(*http.Response) // the method, bound once
}

// Transport makes an [http.RoundTripper] that sends each request through p and, if p
// lets it, to next: the zero [Config]. A nil p lets everything through and changes
// nothing; a nil next is [http.DefaultTransport].
func Transport(p *policy.Pipeline, next http.RoundTripper) *RoundTripper {
	return newRoundTripper(Config{}, p, next)
}

func newRoundTripper(cfg Config, p *policy.Pipeline, next http.RoundTripper) *RoundTripper {
	rt := &RoundTripper{cfg: cfg.withDefaults(), p: p, next: next}
	rt.discard = rt.giveUp
	return rt
}

// Config returns the effective settings.
func (rt *RoundTripper) Config() Config { return rt.cfg }

// CloseIdleConnections passes the wish of [http.Client.CloseIdleConnections] on to the
// next transport, if it understands it.
func (rt *RoundTripper) CloseIdleConnections() {
	if c, ok := rt.transport().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (rt *RoundTripper) transport() http.RoundTripper {
	if rt.next == nil {
		return http.DefaultTransport
	}
	return rt.next
}

// RoundTrip implements [http.RoundTripper]. It blocks until the header of a response is
// there, plus the waits that the pipeline is configured for; all of it ends with the
// request's context.
//
// The error is that of [policy.Do]: a [*policy.RejectedError], the error of the next
// transport, a [*policy.GaveUpError] around it or around the [*policy.AnswerError] that
// stands for a response which was given up for an attempt that then could not be made,
// or the context's error. A response whose status says that it failed is not an error:
// the last one is returned as it is, with its body open.
func (rt *RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	p := rt.p
	if p == nil && rt.cfg.Choose == nil {
		return rt.transport().RoundTrip(req)
	}
	x := exchange{rt: rt, p: p, req: req, caller: req}
	if hasBody(req) {
		x.sent = new(sent)
		defer x.sent.closeUnused(req.Body) // also when a function of the Config panics
	}
	if rt.cfg.Choose != nil {
		own, done := rt.cfg.Choose.Choose(req)
		if done != nil {
			defer done()
		}
		if own != nil {
			p = own
		}
		if p == nil {
			if x.sent != nil {
				x.sent.take() // next closes it
			}
			return rt.transport().RoundTrip(req)
		}
		x.p = p
	}
	call := rt.callOf(req)
	if p.Hedges(*call) {
		// An attempt that has lost may read it while the caller, who has the response,
		// changes the original.
		x.req = req.Clone(req.Context())
	}
	resp, err := policy.DoAttempt(req.Context(), p, call, x, attempt, rt.discard)
	switch {
	case resp != nil:
		// An error beside it is that of a fallback that could not better it.
		return complete(resp, req), nil
	case err == nil:
		err = errNoFallback
	}
	return nil, err
}

// complete fills in what a client expects of a response and what a fallback may have
// left out. A fallback may give the same response to many, so it is not modified.
func complete(resp *http.Response, req *http.Request) *http.Response {
	if resp.Body != nil && resp.Request != nil && resp.Header != nil {
		return resp
	}
	c := *resp
	if c.Body == nil {
		c.Body = http.NoBody
	}
	if c.Request == nil {
		c.Request = req
	}
	if c.Header == nil {
		c.Header = http.Header{}
	}
	return &c
}

// exchange is one request of the caller, tried once or more.
type exchange struct {
	rt     *RoundTripper
	p      *policy.Pipeline
	req    *http.Request // what is sent, and shown to Classify
	caller *http.Request // what responses refer to
	sent   *sent         // nil when the request has no body
}

// attempt sends the request once.
func attempt(ctx context.Context, x exchange, at *policy.Attempt) (*http.Response, error) {
	out, err := x.outgoing(ctx, at)
	if err != nil {
		// Nothing was sent, and it is no fault of the server's.
		at.SetOutcome(policy.Canceled, 0)
		return nil, err
	}
	resp, err := x.rt.transport().RoundTrip(out)
	at.Judging()
	if err == nil && resp == nil {
		err = errNothing
	}
	if err != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close() // against the contract, and still nobody else's
		}
		x.failed(ctx, at, err)
		return nil, err
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if resp.Header == nil {
		resp.Header = http.Header{} // here, since a copy of the caller's would miss the trailer
	}
	if resp.Request == out || resp.Request == nil {
		// Its copy is nobody's business, and its context ends with the attempt.
		resp.Request = x.caller
	}
	kind, pushback := x.judge(resp)
	at.SetOutcome(kind, pushback)
	at.SetCode(uint16(resp.StatusCode)) //nolint:gosec // three digits; it is for texts only
	if followed(resp) {
		return x.follow(resp, at.Hold()), nil
	}
	return resp, nil
}

// failed classifies the end of an attempt without a response, as far as that is not the
// pipeline's business.
func (x *exchange) failed(ctx context.Context, at *policy.Attempt, err error) {
	if x.sent != nil {
		x.sent.failed(err)
	}
	if x.rt.cfg.Classify == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if k := x.rt.cfg.Classify(x.req, nil, err); k != policy.NotRun {
		at.SetOutcome(k, 0)
	}
}

// judge classifies a response. Should the caller's function panic, the response is
// closed, since nobody else will see it.
func (x *exchange) judge(resp *http.Response) (kind policy.Kind, pushback time.Duration) {
	if x.rt.cfg.Classify != nil {
		judged := false
		defer func() {
			if !judged {
				_ = resp.Body.Close()
			}
		}()
		kind = x.rt.cfg.Classify(x.req, resp, nil)
		judged = true
	}
	if kind == policy.NotRun {
		kind = kindOf(resp.StatusCode)
	}
	if mayChange(kind) && x.rt.cfg.MaxRetryAfter > 0 {
		if v := resp.Header.Get("Retry-After"); v != "" {
			pushback = retryAfter(v, time.Now(), x.rt.cfg.MaxRetryAfter)
		}
	}
	if x.rt.cfg.Internal && mayChange(kind) {
		if p := asked(resp.Header); p < 0 || pushback < p {
			pushback = p
		}
	}
	return kind, pushback
}
