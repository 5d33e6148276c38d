package httpx

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

// ClientAddrConfig configures a [ClientAddr]. The zero value is valid and believes no header:
// the client is whoever is at the other end of the connection.
type ClientAddrConfig struct {
	// Trusted are the networks of the proxies whose word about where a request came from
	// is believed. List no more than they are: whoever connects from there chooses who he
	// is. Nil trusts nobody.
	Trusted []netip.Prefix

	// TrustUnix believes the header of connections over a Unix socket, which come from no
	// address. Without it all of them are one client.
	TrustUnix bool

	// Forwarded reads the Forwarded header (RFC 7239) in place of X-Forwarded-For. Of the
	// two only the one that the proxies write can be believed: the other one passes
	// through them from whoever sent it.
	Forwarded bool

	// IPv6Prefix is the length of the prefix that is one client in [ClientAddr.Key], from
	// 1 to 128: whoever has an address has a network of them, so that a limit for each
	// would be none. Zero means 64, which is what a single customer gets at least. IPv4
	// addresses are one client each.
	IPv6Prefix int
}

// Validate reports every invalid field as a [*policy.ConfigError], joined.
func (c ClientAddrConfig) Validate() error {
	var errs []error
	for _, n := range c.Trusted {
		if !n.IsValid() {
			errs = append(errs, &policy.ConfigError{Policy: "httpx", Field: "Trusted", Value: n, Want: "want a network, such as 10.0.0.0/8"})
		}
	}
	if c.IPv6Prefix < 0 || c.IPv6Prefix > 128 {
		errs = append(errs, &policy.ConfigError{Policy: "httpx", Field: "IPv6Prefix", Value: c.IPv6Prefix, Want: "want 1 to 128 (0 means 64)"})
	}
	return errors.Join(errs...)
}

// ClientAddr finds out which client a request came from. It is made by [NewClientAddr] and safe
// for concurrent use. A nil one is that of the zero [ClientAddrConfig].
type ClientAddr struct{ cfg ClientAddrConfig }

// NewClientAddr returns the ClientAddr of a configuration. The error joins every fault as a
// [*policy.ConfigError].
func NewClientAddr(cfg ClientAddrConfig) (*ClientAddr, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Trusted = slices.Clone(cfg.Trusted)
	for i, n := range cfg.Trusted {
		// As addresses are compared: a network of mapped addresses is one of IPv4.
		if n.Addr().Is4In6() && n.Bits() >= 96 {
			n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
		cfg.Trusted[i] = n.Masked()
	}
	if cfg.IPv6Prefix == 0 {
		cfg.IPv6Prefix = defaultIPv6Prefix
	}
	return &ClientAddr{cfg: cfg}, nil
}

const (
	defaultIPv6Prefix = 64

	// maxProxies bounds the work for a header that somebody behind a proxy has made up.
	maxProxies = 32
)

var plainClientAddr = &ClientAddr{cfg: ClientAddrConfig{IPv6Prefix: defaultIPv6Prefix}}

// Config returns the effective settings.
func (c *ClientAddr) Config() ClientAddrConfig {
	if c == nil {
		c = plainClientAddr
	}
	cfg := c.cfg
	cfg.Trusted = slices.Clone(cfg.Trusted)
	return cfg
}

// Key returns what keyed policies can count a client by ([ServerConfig] Key): its address, of
// IPv6 its network, and the same text for all that have none.
func (c *ClientAddr) Key(r *http.Request) string {
	if c == nil {
		c = plainClientAddr
	}
	a := c.Addr(r)
	switch {
	case !a.IsValid():
		return "unknown"
	case a.Is4(), c.cfg.IPv6Prefix == 128:
		return a.String()
	}
	n, err := a.Prefix(c.cfg.IPv6Prefix)
	if err != nil {
		return a.String() // not reached: an address without a zone has all prefixes
	}
	return n.String()
}

// Addr returns the address of the client, without a zone, and that of an IPv4 client as such.
// It is not valid where the connection has none.
//
// It begins with the address of the connection. As long as that is a proxy that is trusted, it
// goes on to the one that the proxy has named, from the end of the header to its beginning:
// what stands further left came from outside and may be anything. Where the named one cannot
// be read, the proxy itself counts as the client.
func (c *ClientAddr) Addr(r *http.Request) netip.Addr {
	if c == nil {
		c = plainClientAddr
	}
	peer, ok := peerOf(r.RemoteAddr)
	if ok && !c.trusts(peer) || !ok && !c.cfg.TrustUnix {
		return peer
	}
	if c.cfg.Forwarded {
		return c.follow(peer, r.Header["Forwarded"], lastForwarded)
	}
	return c.follow(peer, r.Header["X-Forwarded-For"], lastForwardedFor)
}

// follow goes from proxy to proxy. last takes the last entry off a line; it is not ok where that
// is no address.
func (c *ClientAddr) follow(peer netip.Addr, lines []string, last func(line string) (a netip.Addr, rest string, more, ok bool)) netip.Addr {
	proxies := 0
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			var (
				a  netip.Addr
				ok bool
			)
			if a, line, more, ok = last(line); !ok || proxies == maxProxies {
				return peer
			}
			proxies++
			if peer = a; !c.trusts(a) {
				return peer
			}
		}
	}
	return peer
}

func (c *ClientAddr) trusts(a netip.Addr) bool {
	for _, n := range c.cfg.Trusted {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// peerOf returns the address of a connection, which net/http has put together.
func peerOf(remote string) (netip.Addr, bool) {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}, false
	}
	return ap.Addr().Unmap().WithZone(""), true
}

// lastForwardedFor takes the last entry off a line of X-Forwarded-For.
func lastForwardedFor(line string) (a netip.Addr, rest string, more, ok bool) {
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		line, rest, more = line[i+1:], line[:i], true
	}
	a, ok = parseNode(strings.Trim(line, " \t"))
	return a, rest, more, ok
}

// lastForwarded takes the last element off a line of Forwarded. Where quotes begin and end can
// only be told from the front, so a line with a fault anywhere tells nothing: a quote that a
// client has left open must not swallow what a proxy has written behind it.
func lastForwarded(line string) (a netip.Addr, rest string, more, ok bool) {
	start, ok := lastElement(line)
	if !ok {
		return a, "", false, false
	}
	if start > 0 {
		rest, more = line[:start-1], true
	}
	node, ok := forOf(line[start:])
	if !ok {
		return a, "", false, false
	}
	a, ok = parseNode(node)
	return a, rest, more, ok
}

// lastElement returns where the last element of a line begins, if all of them are well formed.
func lastElement(line string) (start int, ok bool) {
	for i := 0; ; {
		start = i
		for {
			if i = skipPair(line, i); i < 0 {
				return 0, false
			}
			if i == len(line) {
				return start, true
			}
			i++
			if line[i-1] == ',' {
				break
			}
		}
	}
}

// skipPair returns where a pair of a name and a value ends: at a comma, a semicolon or the end of
// the line, and -1 where it is none. An element may have empty pairs.
func skipPair(line string, i int) int {
	i = skipSpace(line, i)
	begin := i
	for i < len(line) && isTokenChar(line[i]) {
		i++
	}
	if i > begin {
		if i == len(line) || line[i] != '=' {
			return -1
		}
		if i = skipValue(line, i+1); i < 0 {
			return -1
		}
	}
	i = skipSpace(line, i)
	if i < len(line) && line[i] != ',' && line[i] != ';' {
		return -1
	}
	return i
}

func skipSpace(line string, i int) int {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	return i
}

// skipValue returns where a token or a quoted string ends, and -1 where it is neither. Brackets
// and colons belong into quotes, but are mostly sent without.
func skipValue(line string, i int) int {
	if i == len(line) {
		return -1
	}
	if line[i] != '"' {
		begin := i
		for i < len(line) && (isTokenChar(line[i]) || line[i] == '[' || line[i] == ']' || line[i] == ':') {
			i++
		}
		if i == begin {
			return -1
		}
		return i
	}
	for i++; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// forOf returns the node that a well-formed element is for. One that says so twice says nothing.
func forOf(element string) (node string, ok bool) {
	for i := 0; i <= len(element); {
		end := skipPair(element, i)
		if end < 0 {
			return "", false
		}
		name, value, _ := strings.Cut(strings.Trim(element[i:end], " \t"), "=")
		if strings.EqualFold(name, "for") {
			if ok {
				return "", false
			}
			node, ok = unquote(value), true
		}
		i = end + 1
	}
	return node, ok
}

// unquote takes a well-formed quoted string out of its quotes. No address has anything to escape.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

func isTokenChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// parseNode reads an address with or without a port, in brackets or not: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1] and [2001:db8::1]:80. Zones are left out, since they
// mean something on one machine only.
func parseNode(s string) (netip.Addr, bool) {
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
		if !strings.Contains(s, ":") {
			return netip.Addr{}, false
		}
	} else if strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1 {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		return ap.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}
