package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNotOwned is returned for a target that is not on loopback when nobody has said that
// it is theirs.
var ErrNotOwned = errors.New("a load test of somebody else's server is an attack")

// Target is where the requests go. Its addresses are looked up once: whatever a name
// stands for later, and wherever a redirect leads, no connection goes elsewhere.
type Target struct {
	url  *url.URL
	addr string // host:port, as http.Transport asks for it
	pins []string
	good atomic.Int64 // which pin has been reached last
}

// Resolver looks up the addresses of a host. [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewTarget looks at the address. Unless owned, all addresses of its host have to be
// loopback addresses.
func NewTarget(ctx context.Context, address string, owned bool, resolver Resolver) (*Target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is no address: want one such as http://localhost:8080/captcha", u.Redacted())
	}
	if strings.ContainsFunc(u.Host, func(r rune) bool { return r > 0x7e }) {
		return nil, fmt.Errorf("%q: want the host in ASCII (punycode)", u.Host)
	}
	u.Fragment = ""
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, fmt.Errorf("looking up %s: %w", host, err)
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("looking up %s: there are no addresses", host)
	}
	t := &Target{url: u, addr: net.JoinHostPort(strings.ToLower(host), port)}
	for _, ip := range ips {
		if !owned && !ip.Unmap().IsLoopback() {
			return nil, fmt.Errorf("%s is %v, which is not a loopback address: %w; with --i-own-this-target you say that it is yours, and that those who run it know", host, ip.Unmap(), ErrNotOwned)
		}
		if pin := net.JoinHostPort(ip.Unmap().String(), port); !slices.Contains(t.pins, pin) {
			t.pins = append(t.pins, pin)
		}
	}
	return t, nil
}

// String returns the address of the target without a password.
func (t *Target) String() string { return t.url.Redacted() }

// dial connects to one of the pinned addresses, first to the one that answered last.
func (t *Target) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.EqualFold(addr, t.addr) {
		return nil, fmt.Errorf("%s is not the target", addr)
	}
	var (
		d    net.Dialer
		errs error
		from = int(t.good.Load())
	)
	for i := range t.pins {
		at := (from + i) % len(t.pins)
		conn, err := d.DialContext(ctx, network, t.pins[at])
		if err == nil {
			t.good.Store(int64(at))
			return conn, nil
		}
		errs = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errs
}

// transport returns a transport that knows no other place than the target, and no proxy:
// through one the load test would measure the proxy.
func (t *Target) transport(c Config) *http.Transport {
	return &http.Transport{
		Proxy:               nil,
		DialContext:         t.dial,
		TLSClientConfig:     c.TLS.Clone(),
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: c.Concurrency,
		IdleConnTimeout:     90 * time.Second,
	}
}

// redirects returns what a client does when it is sent elsewhere: up to n times it
// follows within the target.
func (t *Target) redirects(n int) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		if n == 0 {
			return http.ErrUseLastResponse
		}
		if r.URL.Scheme != t.url.Scheme || !strings.EqualFold(r.URL.Host, t.url.Host) {
			return fmt.Errorf("a redirect leads away from the target, to %s", r.URL.Host)
		}
		if len(via) > n {
			return fmt.Errorf("more than %d redirects", n)
		}
		return nil
	}
}
