package dashboard

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Viewer is who makes a request, and what they may do.
type Viewer struct {
	// Name is who it is, for the audit log and the notes of commands. An action
	// without a name is refused.
	Name string

	// Act says that the viewer may change things, if [Config.Actions] is on.
	Act bool

	// Private says that the viewer may see error texts and keys. They come from
	// dependencies and callers, and may hold anything.
	Private bool
}

// Config configures a [Dashboard]. The zero value is valid: whoever is on this machine
// may look, and nobody may act.
type Config struct {
	// Title is what the page calls the process, such as the service's name, at most
	// 128 bytes. Empty means "breakwater".
	Title string

	// Authorize says who makes a request, and whether it is answered at all. It covers
	// reads too, is called concurrently, and is asked again for a stream that lasts.
	// Nil lets in requests from this machine that name it as their host, see
	// [Loopback], to look and not to act.
	Authorize func(r *http.Request) (v Viewer, ok bool)

	// Actions lets viewers who may act change things. False means that nobody can.
	Actions bool

	// Console is that of whoever loads configurations: Console of a config.Manager. With
	// it the page says where each setting comes from, what the last reload did and what
	// is wrong with a file, every setting can be changed by hand, and what is changed
	// survives reloads, and the dashboard. Nil means that changes by hand go to the
	// policies themselves, as far as these can be changed while they run, until the next
	// reload that changes the same.
	Console policy.Console

	// MaxFor is the longest time for which something is changed by hand, at least 1s.
	// Zero means 24h.
	MaxFor time.Duration

	// Audit is told of each action, also of those that were refused, on the goroutine
	// of the request or of the sampler. Nil means that only the page shows them.
	Audit func(AuditEntry)

	// TraceID returns the trace that a call belongs to, from its context, such as
	// otelx.TraceID. It runs on the goroutine of calls that failed or were refused, at
	// most a few times a second for each pipeline. Empty means none, nil that traces
	// are not shown.
	TraceID func(ctx context.Context) string

	// TraceURL is where a trace can be seen: "{trace}" in it is replaced by its id. An
	// http or https address. Empty means that ids are shown without a link.
	TraceURL string

	// Group says which group a dependency is shown in. Nil means what comes before the
	// first slash in its name. Empty is no group.
	Group func(dependency string) string

	// MaxHistoryBytes bounds the memory of the history, from 1 MiB. Pipelines that no
	// longer fit are shown without one. Zero means 48 MiB: 500 pipelines of eight
	// policies, so that the whole stays below 64 MiB.
	MaxHistoryBytes int
}

const (
	defaultTitle      = "breakwater"
	defaultMaxFor     = 24 * time.Hour
	defaultHistory    = 48 << 20
	leastHistory      = 1 << 20
	maxTitle          = 128
	traceHole         = "{trace}"
	maxStreams        = 64
	configKind        = "dashboard"
	longestTitleWords = "want at most 128 bytes"
)

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: configKind, Field: field, Value: value, Want: want})
	}
	if len(c.Title) > maxTitle {
		fail("Title", len(c.Title), longestTitleWords)
	}
	if c.MaxFor != 0 && c.MaxFor < time.Second {
		fail("MaxFor", c.MaxFor, "want at least 1s (0 means 24h)")
	}
	if c.TraceURL != "" && (!isWeb(c.TraceURL) || !strings.Contains(c.TraceURL, traceHole)) {
		fail("TraceURL", c.TraceURL, "want an http or https address with {trace} in it")
	}
	if c.Actions && c.Authorize == nil {
		fail("Actions", true, "want Authorize too: without it nobody has the authority to act")
	}
	if c.MaxHistoryBytes != 0 && c.MaxHistoryBytes < leastHistory {
		fail("MaxHistoryBytes", c.MaxHistoryBytes, "want at least 1 MiB (0 means 48 MiB)")
	}
	return errors.Join(errs...)
}

func isWeb(s string) bool {
	return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://")
}

// withDefaults returns the effective configuration. c must be valid.
func (c Config) withDefaults() Config {
	if c.Title == "" {
		c.Title = defaultTitle
	}
	if c.Authorize == nil {
		c.Authorize = func(r *http.Request) (Viewer, bool) { return Viewer{}, Loopback(r) }
	}
	if c.MaxFor == 0 {
		c.MaxFor = defaultMaxFor
	}
	if c.Audit == nil {
		c.Audit = func(AuditEntry) {}
	}
	if c.Group == nil {
		c.Group = func(dependency string) string {
			group, _, ok := strings.Cut(dependency, "/")
			if !ok {
				return ""
			}
			return group
		}
	}
	if c.MaxHistoryBytes == 0 {
		c.MaxHistoryBytes = defaultHistory
	}
	return c
}

// Loopback reports whether a request comes from this machine and names it as its host.
// The second is what keeps a page on the internet out whose name has been made to point
// at this machine. It is for use in [Config.Authorize]; behind a proxy on the same
// machine every request comes from it.
func Loopback(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// finite replaces what JSON cannot say.
func finite(f float64) float64 {
	switch {
	case math.IsNaN(f):
		return 0
	case math.IsInf(f, 1):
		return math.MaxFloat64
	case math.IsInf(f, -1):
		return -math.MaxFloat64
	}
	return f
}
