package httpx

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

func TestHostOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ url, want string }{
		{"http://api.test/x", "api.test"},
		{"https://api.test:443/", "api.test"},
		{"http://api.test:80/", "api.test"},
		{"http://api.test:443/", "api.test:443"},
		{"https://api.test:8443/", "api.test:8443"},
		{"https://API.Test/", "api.test"},
		{"https://api.test./", "api.test"},
		{"https://api.test.:443/", "api.test"},
		{"https://api.test:/", "api.test"},
		{"http://user:secret@api.test/", "api.test"},
		{"http://10.0.0.1:8080/", "10.0.0.1:8080"},
		{"http://[::1]/", "[::1]"},
		{"http://[2001:DB8::1]:80/", "[2001:db8::1]"},
		{"http://[2001:DB8::1]:81/", "[2001:db8::1]:81"},
		{"http://a_b.test/", "a_b.test"},
		{"http://xn--mnchen-3ya.test/", "xn--mnchen-3ya.test"},
		{"http://münchen.test/", ""},
		{"/path", ""},
		{"http://./", ""},
		{"http://:80/", ""},
		{"http://...:81/", ""},
	} {
		u, err := url.Parse(tc.url)
		require.NoError(t, err)
		got, ok := hostOf(u)
		assert.Equal(t, tc.want != "", ok, tc.url)
		if ok {
			assert.Equal(t, tc.want, got, tc.url)
		}
	}
	_, ok := hostOf(nil)
	assert.False(t, ok)
}

// What comes out is the name of a pipeline, unless it is too long, and stays what it is.
func FuzzHostOf(f *testing.F) {
	for _, s := range []string{"api.test", "API.test.:443", "[::1]:80", "a b", "ü", ":", "..", "]:", "[", "a:443:443", "a.."} {
		f.Add("https", s)
	}
	f.Fuzz(func(t *testing.T, scheme, host string) {
		name, ok := hostOf(&url.URL{Scheme: scheme, Host: host})
		if !ok || len("host:"+name) > maxName {
			return
		}
		_, err := policy.New("host:" + name)
		require.NoError(t, err)
		require.Equal(t, strings.ToLower(name), name)
		if again, ok := hostOf(&url.URL{Scheme: "none", Host: name}); ok {
			require.Equal(t, name, again)
		}
	})
}
