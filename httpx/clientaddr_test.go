package httpx_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// clients builds a ClientAddr that trusts 10.0.0.0/8 and fd00::/8.
func clients(tb testing.TB, cfg httpx.ClientAddrConfig) *httpx.ClientAddr {
	tb.Helper()
	cfg.Trusted = append(cfg.Trusted, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	c, err := httpx.NewClientAddr(cfg)
	require.NoError(tb, err)
	return c
}

// from makes a request that came over a connection from somewhere.
func from(remote string, header ...string) *http.Request {
	r := request(http.MethodGet, "/")
	r.RemoteAddr = remote
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestClientAddr(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		remote string
		header []string // lines of X-Forwarded-For
		want   string
	}{
		"no header":                  {"192.0.2.1:1234", nil, "192.0.2.1"},
		"a stranger's header":        {"192.0.2.1:1234", []string{"203.0.113.9"}, "192.0.2.1"},
		"a proxy's":                  {"10.0.0.1:1234", []string{"203.0.113.9"}, "203.0.113.9"},
		"what came with the request": {"10.0.0.1:1234", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		"proxies in a row":           {"10.0.0.1:1234", []string{"1.1.1.1,203.0.113.9 ,\t10.0.0.3, 10.0.0.2"}, "203.0.113.9"},
		"lines":                      {"10.0.0.1:1234", []string{"1.1.1.1", "203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		"all of them trusted":        {"10.0.0.1:1234", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"a proxy that says nothing":  {"10.0.0.1:1234", nil, "10.0.0.1"},
		"nonsense":                   {"10.0.0.1:1234", []string{"203.0.113.9, nonsense, 10.0.0.2"}, "10.0.0.2"},
		"nonsense at once":           {"10.0.0.1:1234", []string{"203.0.113.9, "}, "10.0.0.1"},
		"an empty line":              {"10.0.0.1:1234", []string{"203.0.113.9", ""}, "10.0.0.1"},
		"unknown":                    {"10.0.0.1:1234", []string{"unknown"}, "10.0.0.1"},
		"a port":                     {"10.0.0.1:1234", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		"a port that is none":        {"10.0.0.1:1234", []string{"203.0.113.9:99999"}, "10.0.0.1"},
		"IPv6":                       {"[fd00::1]:1234", []string{"2001:db8::9"}, "2001:db8::9"},
		"IPv6 in brackets":           {"[fd00::1]:1234", []string{"[2001:db8::9]"}, "2001:db8::9"},
		"IPv6 with a port":           {"[fd00::1]:1234", []string{"[2001:db8::9]:4711"}, "2001:db8::9"},
		"IPv6 with a zone":           {"[fd00::1%eth0]:1234", []string{"fe80::9%eth1"}, "fe80::9"},
		"a mapped address":           {"[::ffff:10.0.0.1]:1234", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		"IPv4 in brackets":           {"10.0.0.1:1234", []string{"[203.0.113.9]"}, "10.0.0.1"},
		"half a bracket":             {"10.0.0.1:1234", []string{"[2001:db8::9"}, "10.0.0.1"},
		"quotes":                     {"10.0.0.1:1234", []string{`"203.0.113.9"`}, "10.0.0.1"},
		"a leading zero":             {"10.0.0.1:1234", []string{"203.0.113.09"}, "10.0.0.1"},
		"too many proxies":           {"10.0.0.1:1234", []string{"203.0.113.9" + strings.Repeat(", 10.0.0.2", 32)}, "10.0.0.2"},
		"many proxies":               {"10.0.0.1:1234", []string{"203.0.113.9" + strings.Repeat(", 10.0.0.2", 31)}, "203.0.113.9"},
		"no address":                 {"@", []string{"203.0.113.9"}, "invalid IP"},
		"an address without a port":  {"10.0.0.1", []string{"203.0.113.9"}, "invalid IP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := from(c.remote)
			r.Header["X-Forwarded-For"] = c.header
			assert.Equal(t, c.want, clients(t, httpx.ClientAddrConfig{}).Addr(r).String())
		})
	}
}

func TestClientAddrForwarded(t *testing.T) {
	t.Parallel()
	const last = "10.0.0.2"
	for line, want := range map[string]string{
		`for=203.0.113.9`:                                       "203.0.113.9",
		`For="203.0.113.9:4711"`:                                "203.0.113.9",
		`for="[2001:db8::9]"`:                                   "2001:db8::9",
		`for="[2001:db8::9]:4711"`:                              "2001:db8::9",
		`for=[2001:db8::9]:4711`:                                "2001:db8::9", // not as RFC 7239 has it
		`proto=https;for=203.0.113.9;by=203.0.113.1`:            "203.0.113.9",
		`for=1.1.1.1;by=9.9.9.9 , for=203.0.113.9;proto="http"`: "203.0.113.9",
		`;for=203.0.113.9;`:                                     "203.0.113.9",
		`host="a,b;for=1.1.1.1\"", for=203.0.113.9`:             "203.0.113.9",
		`for=203.0.113.9, for=10.0.0.3`:                         "203.0.113.9",
		`for=203.0.113.9, for=_hidden`:                          last,
		`for=203.0.113.9, for=unknown`:                          last,
		`for=203.0.113.9, by=203.0.113.1`:                       last,
		`for=203.0.113.9,`:                                      last,
		`for=1.1.1.1;for=203.0.113.9`:                           last,
		`for=`:                                                  last,
		`for`:                                                   last,
		`for = 203.0.113.9`:                                     last,
		`for="203.0.113.9`:                                      last,
		`for="203.0.113.9"x`:                                    last,
		`for="\203.0.113.9"`:                                    last,
		`x="\`:                                                  last,
		``:                                                      last,
		// A quote that a client has left open does not make its word the proxy's.
		`for=1.1.1.1;x=", for=203.0.113.9`:           last,
		`for=1.1.1.1;x=", for="[2001:db8::9]"`:       last,
		`for=1.1.1.1;x=", for="[2001:db8::9]";by=""`: last,
	} {
		r := from("10.0.0.1:1234", "Forwarded", line, "Forwarded", "for=10.0.0.2", "X-Forwarded-For", "9.9.9.9")
		assert.Equal(t, want, clients(t, httpx.ClientAddrConfig{Forwarded: true}).Addr(r).String(), line)
	}
	r := from("10.0.0.1:1234", "Forwarded", "for=203.0.113.9")
	assert.Equal(t, "10.0.0.1", clients(t, httpx.ClientAddrConfig{}).Addr(r).String(), "only one of them is asked")
}

func TestClientAddrKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg          httpx.ClientAddrConfig
		remote, want string
	}{
		{httpx.ClientAddrConfig{}, "192.0.2.1:1", "192.0.2.1"},
		{httpx.ClientAddrConfig{}, "[::ffff:192.0.2.1]:1", "192.0.2.1"},
		{httpx.ClientAddrConfig{}, "[2001:db8:1:2:3:4:5:6%eth0]:1", "2001:db8:1:2::/64"},
		{httpx.ClientAddrConfig{IPv6Prefix: 56}, "[2001:db8:1:2ff:3:4:5:6]:1", "2001:db8:1:200::/56"},
		{httpx.ClientAddrConfig{IPv6Prefix: 128}, "[2001:db8::6]:1", "2001:db8::6"},
		{httpx.ClientAddrConfig{}, "@", "unknown"},
	} {
		assert.Equal(t, c.want, clients(t, c.cfg).Key(from(c.remote)))
	}
	var none *httpx.ClientAddr
	assert.Equal(t, "2001:db8:1:2::/64", none.Key(from("[2001:db8:1:2::9]:1", "X-Forwarded-For", "1.1.1.1")))
	assert.Equal(t, "192.0.2.1", none.Addr(from("192.0.2.1:1")).String())
	assert.Equal(t, 64, none.Config().IPv6Prefix)
}

func TestClientAddrUnix(t *testing.T) {
	t.Parallel()
	c := clients(t, httpx.ClientAddrConfig{TrustUnix: true})
	assert.Equal(t, "203.0.113.9", c.Key(from("@", "X-Forwarded-For", "1.1.1.1, 203.0.113.9")))
	assert.Equal(t, "unknown", c.Key(from("@")))
	assert.Equal(t, "192.0.2.1", c.Key(from("192.0.2.1:1", "X-Forwarded-For", "203.0.113.9")))
}

func TestNewClientAddr(t *testing.T) {
	t.Parallel()
	mapped := netip.MustParsePrefix("::ffff:192.0.2.77/120")
	list := []netip.Prefix{mapped}
	c, err := httpx.NewClientAddr(httpx.ClientAddrConfig{Trusted: list})
	require.NoError(t, err)
	list[0] = netip.MustParsePrefix("0.0.0.0/0")
	assert.Equal(t, httpx.ClientAddrConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, IPv6Prefix: 64}, c.Config())
	assert.Equal(t, "203.0.113.9", c.Key(from("192.0.2.1:1", "X-Forwarded-For", "203.0.113.9")))

	_, err = httpx.NewClientAddr(httpx.ClientAddrConfig{Trusted: []netip.Prefix{{}}, IPv6Prefix: 129})
	require.ErrorContains(t, err, "httpx.Trusted: invalid Prefix: want a network")
	require.ErrorContains(t, err, "httpx.IPv6Prefix: 129: want 1 to 128 (0 means 64)")
	_, ok := err.(interface{ Unwrap() []error })
	assert.True(t, ok)
	var ce *policy.ConfigError
	assert.ErrorAs(t, err, &ce)
}

// Whatever a client sends: who is not trusted is the client, and behind a proxy the client is
// the one that the proxy names, or else a proxy.
func FuzzClientAddr(f *testing.F) {
	for _, s := range []string{
		"", "1.1.1.1", "10.0.0.9, 10.0.0.8", `for=1.1.1.1;x="`, `for="[::1]:80"`, `"`, `\`, "[", "%", `for="\`, ",;,", "10.0.0.9,", "for=10.0.0.9;by=\"\"",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	x, fw := clients(f, httpx.ClientAddrConfig{}), clients(f, httpx.ClientAddrConfig{Forwarded: true})
	f.Fuzz(func(t *testing.T, sent string, ownLine bool) {
		for _, c := range []struct {
			of             *httpx.ClientAddr
			header, prefix string
		}{{x, "X-Forwarded-For", ""}, {fw, "Forwarded", "for="}} {
			set := func(r *http.Request, more string) *http.Request {
				lines := []string{sent}
				switch {
				case more == "":
				case ownLine:
					lines = append(lines, more)
				default:
					lines = []string{sent + ", " + more}
				}
				r.Header[c.header] = lines
				return r
			}
			require.Equal(t, "192.0.2.1", c.of.Key(set(from("192.0.2.1:1"), "")))
			got := c.of.Addr(set(from("10.0.0.1:1"), c.prefix+"203.0.113.9"))
			want := []string{"203.0.113.9"}
			if c.of == fw && !ownLine {
				want = append(want, "10.0.0.1") // a fault in the line
			}
			require.True(t, slices.Contains(want, got.String()), "%s of %q", got, sent)
			// And through two.
			two := c.of.Addr(set(from("10.0.0.1:1"), c.prefix+"203.0.113.9, "+c.prefix+"10.0.0.2"))
			require.True(t, slices.Contains(append(want, "10.0.0.2"), two.String()), "%s of %q", two, sent)
			c.of.Key(set(from("10.0.0.1:1"), ""))
		}
	})
}
