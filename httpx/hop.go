package httpx

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
)

// Hop is the server's side of what services tell each other about retries (package hop).
// It reads the marks of a request into its context: the attempt that it is, so that
// pipelines called for it do not retry what a layer above is retrying already; the time
// that somebody waits for it, which becomes a deadline; and its priority. And it marks a
// response that failed where a pipeline has retried in vain, so that the layer above does
// not retry it either.
//
// All of it is done for requests that Trust accepts, and nothing for others: a stranger
// who claims to be a retry, or to matter, gets what everybody gets.
//
// The zero value trusts nobody.
type Hop struct {
	// Trust says whether the sender of a request is one of ours. It must go by what
	// the sender cannot choose: its address if no proxy stands between ([TrustNetworks]),
	// its certificate, a token that was checked. It runs on the goroutine of the
	// request, concurrently. Nil trusts nobody.
	Trust func(r *http.Request) bool
}

// Handler returns a handler that reads the marks of requests and hands them on to next,
// and marks the responses. It belongs inside of what answers without calling a pipeline,
// and outside of what does.
//
// The [http.ResponseWriter] that next gets is a [http.Flusher], [http.Hijacker],
// [io.ReaderFrom] or [http.Pusher] where the server's is, in the combinations of HTTP/1.1
// and HTTP/2; [http.ResponseController] finds everything.
func (h Hop) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Trust == nil || !h.Trust(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel, known := read(r.Context(), r.Header)
		defer cancel()
		next.ServeHTTP(watch(w, known), r.WithContext(ctx))
	})
}

// read returns the context of a request that is trusted, from what it has and what its
// header says.
func read(ctx context.Context, h http.Header) (_ context.Context, cancel context.CancelFunc, known *policy.Hop) {
	n, ok := hop.ParseAttempt(single(h, hop.AttemptHeader))
	if !ok {
		n = 1
	}
	known = policy.NewHop(n)
	ctx = policy.WithHop(ctx, known)
	if p, ok := hop.ParsePriority(single(h, hop.PriorityHeader)); ok {
		ctx = policy.WithPriority(ctx, p)
	}
	cancel = func() {}
	if d, ok := hop.ParseTimeout(single(h, hop.TimeoutHeader)); ok {
		// A deadline that the server has set, and which is earlier, stays.
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	return ctx, cancel, known
}

// TrustNetworks returns a [Hop] Trust that accepts requests whose connection comes from
// one of the networks. It goes by the address of the connection and never by a header,
// so behind a proxy it sees the proxy.
func TrustNetworks(networks ...netip.Prefix) func(r *http.Request) bool {
	list := make([]netip.Prefix, len(networks))
	copy(list, networks)
	return func(r *http.Request) bool {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return false
		}
		addr := peer.Addr().Unmap().WithZone("")
		for _, n := range list {
			if n.Contains(addr) {
				return true
			}
		}
		return false
	}
}

// watch returns a writer that marks a failed response where known says so, with the
// abilities of w.
func watch(w http.ResponseWriter, known *policy.Hop) http.ResponseWriter {
	base := &marker{ResponseWriter: w, known: known}
	f, flushes := w.(http.Flusher)
	if !flushes {
		return base
	}
	flusher := flushMarker{base, f}
	if h, ok := w.(http.Hijacker); ok {
		return &http1Marker{flusher, h, readerFrom(w)}
	}
	if p, ok := w.(http.Pusher); ok {
		return &http2Marker{flusher, p}
	}
	return &flusher
}

// marker is a ResponseWriter that marks a response as it begins.
type marker struct {
	http.ResponseWriter

	known *policy.Hop
	begun bool
}

// Unwrap is for [http.ResponseController].
func (m *marker) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *marker) WriteHeader(status int) {
	if !m.begun && (status >= 200 || status == http.StatusSwitchingProtocols) {
		m.begun = true
		if m.known.Spent() && mayChange(kindOf(status)) {
			m.Header().Set(hop.PushbackHeader, hop.FormatPushback(-1))
		}
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write begins the response with status 200, which is no failure.
func (m *marker) Write(p []byte) (int, error) {
	m.begun = true
	return m.ResponseWriter.Write(p)
}

type flushMarker struct {
	*marker

	flusher http.Flusher
}

func (m *flushMarker) Flush() {
	m.begun = true
	m.flusher.Flush()
}

// FlushError is what [http.ResponseController] asks for first.
func (m *flushMarker) FlushError() error {
	m.begun = true
	return http.NewResponseController(m.ResponseWriter).Flush()
}

type http1Marker struct {
	flushMarker

	hijacker http.Hijacker
	reader   io.ReaderFrom
}

func (m *http1Marker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return m.hijacker.Hijack() }

// CloseNotify is there for those who still use it: gin's streams panic without.
func (m *http1Marker) CloseNotify() <-chan bool { return closeNotifyOf(m.ResponseWriter) }

func (m *http1Marker) ReadFrom(r io.Reader) (int64, error) {
	m.begun = true
	return m.reader.ReadFrom(r)
}

type http2Marker struct {
	flushMarker

	pusher http.Pusher
}

// CloseNotify is that of HTTP/1.1.
func (m *http2Marker) CloseNotify() <-chan bool { return closeNotifyOf(m.ResponseWriter) }

// closeNotifyOf asks a writer, which tells nothing if it cannot be asked.
func closeNotifyOf(w http.ResponseWriter) <-chan bool {
	if c, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // see above
		return c.CloseNotify()
	}
	return nil
}

func (m *http2Marker) Push(target string, opts *http.PushOptions) error {
	return m.pusher.Push(target, opts)
}
