package httpx

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The types of problems that this package answers with, as draft-ietf-httpapi-ratelimit-headers
// registers them. A problem without a type has none beyond its status ("about:blank").
const (
	TypeQuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeTemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Body says what an answer to an error has for a body.
type Body uint8

// The bodies of errors.
const (
	BodyProblem Body = iota // application/problem+json (RFC 9457)
	BodyNone                // nothing: Content-Length is 0

	numBodies
)

// Problem is an answer to an error, as RFC 9457 describes it. As an error of a [HandlerFunc]
// it says what the handler answers with:
//
//	return &httpx.Problem{Status: http.StatusNotFound, Detail: "There is no such order."}
//
// Its fields are for the client, but for Err.
type Problem struct { //nolint:errname // it is a body first of all, and RFC 9457's word
	// Type is a URI that says which kind of problem it is. Empty means that the status
	// says all.
	Type string

	// Title is a short text that is the same for all problems of the Type. Empty means
	// that of the status.
	Title string

	// Status is the status of the answer, from 400 to 599. What is outside of them
	// means 500.
	Status int

	// Detail says what has happened this time, and what to do about it. Empty leaves it
	// out.
	Detail string

	// Instance is a URI of this occurrence. Empty leaves it out.
	Instance string

	// RetryAfter is the time after which another try makes sense, sent in whole seconds,
	// rounded up. Zero is unknown, which 429 and 503 turn into one second; negative
	// sends nothing.
	RetryAfter time.Duration

	// Members are what the body has beside these. Names of the standard ones are left
	// out.
	Members map[string]any

	// Err is the error behind the problem, for logs and pipelines. It is never sent.
	Err error
}

// Error reads like "404 Not Found: There is no such order.", with the error behind it.
func (p *Problem) Error() string {
	s := strconv.Itoa(p.status()) + " " + p.title()
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.Err != nil {
		s += ": " + p.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

func (p *Problem) status() int {
	if p.Status < 400 || p.Status > 599 {
		return http.StatusInternalServerError
	}
	return p.Status
}

func (p *Problem) title() string {
	if p.Title != "" {
		return p.Title
	}
	return http.StatusText(p.status())
}

// MarshalJSON writes the body that the problem is sent with.
func (p *Problem) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	member := func(name string, v any) error {
		value, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(name) // a string always can
		b = append(append(append(b, key...), ':'), value...)
		return nil
	}
	for _, m := range []struct{ name, value string }{{"type", p.Type}, {"title", p.title()}} {
		if m.value != "" {
			_ = member(m.name, m.value)
		}
	}
	_ = member("status", p.status())
	for _, m := range []struct{ name, value string }{{"detail", p.Detail}, {"instance", p.Instance}} {
		if m.value != "" {
			_ = member(m.name, m.value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Members)) {
		switch name {
		case "type", "title", "status", "detail", "instance":
			continue
		}
		if err := member(name, p.Members[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// RetryAfterSeconds returns what the Retry-After header says, and false where there is none. An
// unknown time is a second where the status invites to come back.
func (p *Problem) RetryAfterSeconds() (seconds int64, ok bool) {
	s := p.retryAfterSeconds()
	return s, s > 0
}

func (p *Problem) retryAfterSeconds() int64 {
	status := p.status()
	switch {
	case p.RetryAfter < 0:
		return 0
	case p.RetryAfter > 0:
		return wholeSeconds(p.RetryAfter)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return 1
	default:
		return 0
	}
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// The problems that say nothing about their refusal, and their bodies: an overloaded server
// sends them all the time.
var (
	quotaExceeded = Problem{
		Type: TypeQuotaExceeded, Title: "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests,
	}
	reducedCapacity = Problem{
		Type: TypeTemporaryReducedCapacity, Title: "Request cannot be satisfied due to temporary server capacity constraints",
		Status: http.StatusServiceUnavailable,
	}

	quotaExceededBody   = quotaExceeded.body()
	reducedCapacityBody = reducedCapacity.body()
)

// body returns the body that the problem is sent with. Members that cannot be written are left
// out: the client is to learn of the problem in any case.
func (p *Problem) body() []byte {
	b, err := p.MarshalJSON()
	if err != nil {
		bare := *p
		bare.Members = nil
		b, _ = bare.MarshalJSON() // strings and a number always can
	}
	return b
}

// write sends the problem with its body, which may be empty.
func (p *Problem) write(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	// What the handler has said about the answer that it did not give.
	for _, name := range [...]string{
		"Content-Encoding", "Content-Range", "Content-Type", "Etag", "Last-Modified", "Cache-Control", "Trailer", "Retry-After",
	} {
		delete(h, name)
	}
	values := new([4]string)
	set := func(i int, name, value string) {
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	}
	if s := p.retryAfterSeconds(); s > 0 {
		set(0, "Retry-After", strconv.FormatInt(s, 10))
	}
	if len(body) > 0 {
		set(1, "Content-Type", "application/problem+json")
	}
	set(2, "Content-Length", strconv.Itoa(len(body)))
	set(3, "X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.status())
	if len(body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(body) //nolint:gosec // it is JSON, and says so; whoever does not get it is gone
	}
}
