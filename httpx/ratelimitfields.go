package httpx

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

// RateLimitFields says which answers carry the fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers: what the server's rate limits allow a client, and what
// of it is left.
type RateLimitFields uint8

// Which answers carry the fields.
const (
	RateLimitRefused RateLimitFields = iota // those that refuse for a rate limit of the server's own
	RateLimitAlways                         // all that the server's pipelines have decided about
	RateLimitNever

	numRateLimitFields
)

// maxQuotas is what fits on the stack: more limits than that are rare.
const maxQuotas = 4

// tellQuotas puts what the limits of the request's pipeline allow into a header.
func (s *Server) tellQuotas(ctx context.Context, x *served, h http.Header, re *policy.RejectedError) {
	var space [maxQuotas]policy.Quota
	list := x.p.Quotas(ctx, &x.call, space[:0])
	if len(list) == 0 {
		return
	}
	values := new([2]string)
	values[0], values[1] = FormatQuotas(list)
	h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	if s.cfg.XRateLimit {
		q := tightest(list, violated(re))
		h.Set("X-Ratelimit-Limit", strconv.Itoa(q.Limit))
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(q.Remaining))
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(wholeSeconds(q.Reset), 10))
	}
}

// FormatQuotas returns the values of the fields RateLimit-Policy and RateLimit, for servers that
// are not made of net/http. They are empty for no quotas.
func FormatQuotas(list []policy.Quota) (rateLimitPolicy, rateLimit string) {
	var b strings.Builder
	b.Grow(len(list) * 48)
	for i, q := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		writeString(&b, q.Policy)
		writeParam(&b, 'q', int64(q.Limit))
		writeParam(&b, 'w', max(wholeSeconds(q.Window), 1))
	}
	split := b.Len()
	for i, q := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		writeString(&b, q.Policy)
		writeParam(&b, 'r', int64(q.Remaining))
		writeParam(&b, 't', wholeSeconds(q.Reset))
	}
	return b.String()[:split], b.String()[split:]
}

// tightest returns the quota of the limit that refused, or else that of which the smallest share
// is left.
func tightest(list []policy.Quota, refused string) policy.Quota {
	best := list[0]
	for _, q := range list {
		if q.Policy == refused {
			return q
		}
		if int64(q.Remaining)*int64(best.Limit) < int64(best.Remaining)*int64(q.Limit) {
			best = q
		}
	}
	return best
}

// violated returns the name that the quota has of the limit which refused, and an empty one
// where none did.
func violated(re *policy.RejectedError) string {
	if re == nil || !limited(re) {
		return ""
	}
	if part := partOf(re); part != "" {
		return re.Policy + "." + part
	}
	return re.Policy
}

// exposedQuotas are the limits as a body shows them.
func exposedQuotas(list []policy.Quota) []map[string]any {
	shown := make([]map[string]any, 0, len(list))
	for _, q := range list {
		shown = append(shown, map[string]any{
			"policy": q.Policy, "quota": q.Limit, "window": max(wholeSeconds(q.Window), 1),
			"remaining": q.Remaining, "reset": wholeSeconds(q.Reset),
		})
	}
	return shown
}

// writeParam writes an integer parameter of a structured field (RFC 9651 §4.1.1.2).
func writeParam(b *strings.Builder, key byte, v int64) {
	b.WriteByte(';')
	b.WriteByte(key)
	b.WriteByte('=')
	var digits [20]byte
	b.Write(strconv.AppendInt(digits[:0], min(v, maxInteger), 10))
}

// maxInteger is the largest integer of a structured field.
const maxInteger = 999_999_999_999_999

// writeString writes a string of a structured field (RFC 9651 §4.1.6). It has printable ASCII
// only: what else is in a name becomes an underscore.
func writeString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7f:
			b.WriteByte('_')
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
