package httpx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// ServerConfig configures a [Server]. The zero value is valid: every field documents what
// zero means. [NewServer] copies it; later changes have no effect.
//
// The functions run on the goroutine of the request and may run concurrently.
type ServerConfig struct {
	// Routes are the pipelines of routes that have one of their own, in place of the
	// server's. A nil one lets everything in. Pipelines that are to share a limit are
	// given the same live one. Nil means that no route has.
	Routes map[string]*policy.Pipeline

	// Route says which route a request is for. What it returns must be one of a set
	// that requests cannot enlarge, such as the patterns of a router. Nil means
	// [http.Request] Pattern, which is set inside of an [http.ServeMux]; outside of
	// one, use [MuxRoute].
	Route func(r *http.Request) string

	// Key says what keyed policies of the server's pipelines count a request by, such as
	// a user or [ClientAddr.Key]. The pipelines below do not see it. Nil means no key.
	Key func(r *http.Request) string

	// Lane says which lane of a [ratelimit.Lanes] a request uses, in the server's
	// pipelines and in those below. An empty name leaves it to the priority, as nil
	// does.
	Lane func(r *http.Request) string

	// Priority says how much a request matters, in the server's pipelines and in those
	// below. Nil leaves what the context says: what a sender has claimed whom Trust
	// accepts, or normal.
	Priority func(r *http.Request) policy.Priority

	// Cost says how many tokens a request takes from rate limits of the server's
	// pipelines. Zero and negative mean 1. Nil means 1 for every request.
	Cost func(r *http.Request) int

	// Classify judges an answer by its status for the server's pipelines.
	// [policy.NotRun] leaves it to the default: 5xx is a failure, 503 busy, 429
	// neutral, 501, 505 and the rest of 4xx an answer. It is not asked when the client
	// is gone. Nil judges nothing.
	Classify func(r *http.Request, status int) policy.Kind

	// Status says which status a refusal has, by any pipeline. Zero leaves it to the
	// default: 429 where a rate limit of the server's own pipelines refused, 503 for
	// all else. [StatusOf] goes by the reason alone. Nil means the default.
	Status func(re *policy.RejectedError) int

	// Body says what errors have for a body. Zero means [BodyProblem].
	Body Body

	// Expose tells clients which dependency and policy are behind a refusal, why, and
	// what the limits are. Otherwise they get a text that is the same for all.
	Expose bool

	// RateLimit says which answers carry the RateLimit fields. Zero means
	// [RateLimitRefused].
	RateLimit RateLimitFields

	// XRateLimit adds X-RateLimit-Limit, -Remaining and -Reset (in seconds) to them, of
	// the limit that refused or of which the least is left, for clients that know no
	// others.
	XRateLimit bool

	// Trust says whether the sender of a request is one of ours, so that its marks are
	// believed, as in [Hop]. It must go by what the sender cannot choose. Nil trusts
	// nobody. With it there is no need for a Hop beside the server.
	Trust func(r *http.Request) bool

	// OnError is told of every error that was answered, refusals included, after the
	// answer was written: for a log. Nil tells nobody.
	OnError func(e ErrorEvent)
}

// Validate reports every invalid field as a [*policy.ConfigError], joined.
func (c ServerConfig) Validate() error {
	var errs []error
	if c.Body >= numBodies {
		errs = append(errs, &policy.ConfigError{
			Policy: "httpx", Field: "Body", Value: c.Body, Want: "want BodyProblem or BodyNone",
		})
	}
	if c.RateLimit >= numRateLimitFields {
		errs = append(errs, &policy.ConfigError{
			Policy: "httpx", Field: "RateLimit", Value: c.RateLimit, Want: "want RateLimitRefused, RateLimitAlways or RateLimitNever",
		})
	}
	for route, p := range c.Routes {
		errs = append(errs, unfit(fmt.Sprintf("Routes[%q]", route), p))
	}
	return errors.Join(errs...)
}

// unfit says what of a pipeline has no place in front of a handler, which runs once, on the
// goroutine of its request.
func unfit(field string, p *policy.Pipeline) error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, ps := range p.Snapshot().Policies {
		var want string
		switch {
		case ps.Bulkhead != nil && ps.Kind == "pool":
			want = "want no pool: a handler runs on the goroutine of its request; use a bulkhead.Semaphore, with MaxWait for a queue"
		case ps.Retry != nil, ps.Hedge != nil:
			want = "want no " + ps.Kind + ": a handler runs once, since its request's body is read and its answer begun"
		case ps.Fallback != nil:
			want = "want no fallback: an answer has no value to be replaced; answer in the handler"
		default:
			continue
		}
		errs = append(errs, &policy.ConfigError{Dependency: p.Name(), Policy: ps.Name, Field: field, Want: want})
	}
	return errors.Join(errs...)
}

// Server lets requests in through pipelines, and answers for the refusals of all pipelines.
// It is made by [NewServer] and safe for concurrent use.
type Server struct {
	cfg   ServerConfig
	p     *policy.Pipeline
	names map[string]struct{} // of all its pipelines
}

// NewServer returns a server that lets requests in through p. It may be nil, where only
// some routes have a pipeline, or none: the server then answers for the refusals of those
// that handlers call. The error joins every fault as a [*policy.ConfigError]: a pipeline may
// have gates and timeouts, but no pool, retry, hedge or fallback.
func NewServer(p *policy.Pipeline, cfg ServerConfig) (*Server, error) {
	if err := errors.Join(cfg.Validate(), unfit("pipeline", p)); err != nil {
		return nil, err
	}
	cfg.Routes = maps.Clone(cfg.Routes)
	s := &Server{cfg: cfg, p: p, names: make(map[string]struct{}, len(cfg.Routes)+1)}
	if p != nil {
		s.names[p.Name()] = struct{}{}
	}
	for _, p := range cfg.Routes {
		if p != nil {
			s.names[p.Name()] = struct{}{}
		}
	}
	return s, nil
}

// Config returns the effective settings.
func (s *Server) Config() ServerConfig {
	cfg := s.cfg
	cfg.Routes = maps.Clone(cfg.Routes)
	return cfg
}

// Handler returns a handler that lets requests in to next, or answers with the refusal. It
// has the form that routers want of a middleware.
//
// What is held for a request is held until next returns, also when it has taken over the
// connection. The request's outcome is told with its header: its status, and the time until
// then, so that a client that reads slowly does not make the handler look slow. A handler that
// panics has failed, also after that; the panic passes through. A client that is gone before
// the answer began counts as nothing at all.
//
// The [http.ResponseWriter] that next gets is a [http.Flusher], [http.Hijacker],
// [http.CloseNotifier], [io.ReaderFrom] or [http.Pusher] where the server's is, in the
// combinations of HTTP/1.1 and HTTP/2; [http.ResponseController] finds everything.
func (s *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, next) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var known *policy.Hop
	if s.cfg.Trust != nil && s.cfg.Trust(r) {
		ctx, cancel, hop := read(r.Context(), r.Header)
		defer cancel()
		known, r = hop, r.WithContext(ctx)
	}
	out, x := serveThrough(w)
	x.s, x.known, x.p = s, known, s.p
	x.route = s.route(r)
	if p, ok := s.cfg.Routes[x.route]; ok {
		x.p = p
	}
	r = s.inform(x, r)
	x.r = r
	h, err := x.p.EnterCall(r.Context(), &x.call) //nolint:contextcheck // inform made it of the request's
	if err != nil {
		s.answer(out, x, r, err)
		return
	}
	x.h = h
	if h.Bounded() {
		r = r.WithContext(h.Context()) //nolint:contextcheck // it is r's, bounded
		x.r = r
	}
	defer x.end() //nolint:contextcheck // it asks the request's
	if s.cfg.RateLimit == RateLimitAlways {
		s.tellQuotas(r.Context(), x, out.Header(), nil) //nolint:contextcheck // see above
	}
	next.ServeHTTP(out, r)
	x.returned = true
}

func (s *Server) route(r *http.Request) string {
	if s.cfg.Route != nil {
		return s.cfg.Route(r)
	}
	return r.Pattern
}

// inform asks the functions of the configuration what the pipelines are to know of a request.
func (s *Server) inform(x *served, r *http.Request) *http.Request {
	ctx := r.Context()
	x.call = policy.CallFrom(ctx)
	more := ctx
	if s.cfg.Priority != nil {
		if p := s.cfg.Priority(r); p != x.call.Priority {
			x.call.Priority = p
			more = policy.WithPriority(more, p)
		}
	}
	if s.cfg.Lane != nil {
		if x.lane = s.cfg.Lane(r); x.lane != "" {
			more = ratelimit.WithLane(more, x.lane)
		}
	}
	x.call.NoRetry, x.call.Idempotent = true, false
	if s.cfg.Key != nil {
		x.call.Key = s.cfg.Key(r)
	}
	if s.cfg.Cost != nil {
		x.call.Cost = s.cfg.Cost(r)
	}
	if s.cfg.Priority != nil || x.lane != "" {
		return r.WithContext(more)
	}
	return r
}

// owns reports whether a pipeline of that name is one of the server's.
func (s *Server) owns(name string) bool {
	_, ok := s.names[name]
	return ok
}

// MuxRoute returns a [ServerConfig] Route for a server around mux: the pattern that mux will
// find for a request, and an empty one where it finds none. Inside of a mux it is not
// needed.
func MuxRoute(mux *http.ServeMux) func(r *http.Request) string {
	return func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}
}

// canceled reports whether the client of a request is gone, and nothing else has ended its
// context before.
func canceled(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !overdue(ctx)
}
