package top_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/top"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a dashboard with an open breaker, to whoever has the token.
func serve(t *testing.T) string {
	t.Helper()
	reg := new(policy.Registry)
	p, err := reg.New("inventory[red]", breaker.Config{MinCalls: 5, OpenFor: time.Minute})
	require.NoError(t, err)
	_, err = reg.New("catalogue", breaker.Config{})
	require.NoError(t, err)
	d, err := dashboard.New(reg, dashboard.Config{Title: "shop", Authorize: func(r *http.Request) (dashboard.Viewer, bool) {
		return dashboard.Viewer{Name: "ann"}, r.Header.Get("Authorization") == "Bearer abc"
	}})
	require.NoError(t, err)
	for range 10 {
		_ = policy.Run(t.Context(), p, func(context.Context) error { return errors.New("boom") })
	}
	reg.ConfigApplied("1 (load)")
	reg.ConfigRefused("2 (reload)", errors.New("breakwater.yaml:7:3: mail.breaker.OpenFr: there is no such setting"))
	srv := httptest.NewServer(http.StripPrefix("/breakwater", d))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); d.Close() })
	return srv.URL + "/breakwater"
}

func headers(t *testing.T, text string) http.Header {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	h, err := top.ReadHeaders(file)
	require.NoError(t, err)
	return h
}

func TestPrint(t *testing.T) {
	url := serve(t)
	c, err := top.NewClient(url, headers(t, "# a comment\n\nauthorization:  Bearer abc \n"))
	require.NoError(t, err)
	var o dashboard.Overview
	require.Eventually(t, func() bool { // the next sample has seen it
		o, err = c.Overview(t.Context())
		return err == nil && o.Cards[0].State == "open"
	}, 10*time.Second, 20*time.Millisecond)
	var out bytes.Buffer
	require.NoError(t, top.Print(&out, &o))
	text := out.String()
	assert.Contains(t, text, "■ 1 of 2 in trouble")
	assert.Regexp(t, `■\s+inventory\[red\]\s+open`, text)
	assert.Regexp(t, `●\s+catalogue\s+fine`, text)
	assert.Contains(t, text, "What is open? inventory[red] is open.")
	assert.Less(t, strings.Index(text, "inventory"), strings.Index(text, "catalogue"), "the worst first")
	assert.Equal(t, 10, strings.Count(text, "? "))
	assert.Regexp(t, `the configuration loaded at \d\d:\d\d:\d\d is wrong; version 1 stays in force\n   breakwater.yaml:7:3: mail.breaker.OpenFr: `, text)
}

func TestRefused(t *testing.T) {
	url := serve(t)
	c, err := top.NewClient(url, nil)
	require.NoError(t, err)
	_, err = c.Overview(t.Context())
	require.ErrorContains(t, err, "403 Forbidden: not authorized")

	for _, bad := range []string{"", "host", "ftp://host/", "http://", "http://%zz"} {
		_, err := top.NewClient(bad, nil)
		require.Error(t, err, bad)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c, err = top.NewClient(srv.URL, nil)
	require.NoError(t, err)
	_, err = c.Overview(t.Context())
	require.ErrorContains(t, err, "404 Not Found: there is no dashboard at this address")

	file := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(file, []byte("secret-without-a-name"), 0o600))
	_, err = top.ReadHeaders(file)
	require.ErrorContains(t, err, "headers:1")
	assert.NotContains(t, err.Error(), "secret")
	_, err = top.ReadHeaders(file + "-nothing")
	require.Error(t, err)
}
