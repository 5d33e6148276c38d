package httpx

import (
	"context"
	"net/http"
	"time"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
)

// marked returns a copy of a request's header that says what an attempt is. Marks that
// are there already came from somewhere else, with a request that is passed on: whoever
// trusts us must not read them as ours.
func marked(ctx context.Context, header http.Header, at *policy.Attempt) http.Header {
	h := header.Clone()
	if h == nil {
		h = make(http.Header, 2)
	}
	// A hedge counts as a retry: the layers below need not try again what is tried
	// twice already.
	h.Set(hop.AttemptHeader, hop.FormatAttempt(policy.HopFrom(ctx).Next(at.Number()+at.Hedge())))
	h.Del(hop.TimeoutHeader)
	if deadline, ok := ctx.Deadline(); ok {
		h.Set(hop.TimeoutHeader, hop.FormatTimeout(time.Until(deadline)))
	}
	h.Del(hop.PriorityHeader)
	if p := hop.FormatPriority(at.Call().Priority); p != "" {
		h.Set(hop.PriorityHeader, p)
	}
	return h
}

// asked returns the pushback of a response by one of ours: 0 when it says nothing, and
// negative when the request is not to be sent again.
func asked(h http.Header) time.Duration {
	switch values := h[hop.PushbackHeader]; len(values) {
	case 0:
		return 0
	case 1:
		return hop.ParsePushback(values[0])
	default:
		return -1
	}
}

// single returns the value of a header that is there once.
func single(h http.Header, key string) string {
	if values := h[key]; len(values) == 1 {
		return values[0]
	}
	return ""
}
