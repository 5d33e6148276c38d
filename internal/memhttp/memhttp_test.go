package memhttp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/memhttp"
)

// echo answers with the request's body, all of which it reads first: a server that
// answers earlier closes the connection of a large request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = w.Write(b)
})

func post(t *testing.T, c *http.Client, url, body string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestServerEchoes(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2.0": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var proto string
				s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					proto = r.Proto
					echo(w, r)
				}))
				defer s.Close()
				tr := s.Transport()
				tr.Protocols = new(http.Protocols)
				use(tr.Protocols)
				c := &http.Client{Transport: tr}
				large := string(bytes.Repeat([]byte("breakwater"), 100_000))
				for _, body := range []string{"", "x", large} {
					got, err := post(t, c, s.URL(), body)
					require.NoError(t, err)
					assert.Equal(t, len(body), len(got))
					assert.True(t, body == got, "the body of %d bytes came back changed", len(body))
				}
				assert.Equal(t, name, proto)
				assert.Equal(t, 1, s.Dialed(), "one connection serves all requests")
				assert.Equal(t, 1, s.Open())
				tr.CloseIdleConnections()
				synctest.Wait()
				assert.Equal(t, 0, s.Open())
			})
		})
	}
}

func TestServerRunsOnVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		defer s.Close()
		began := time.Now()
		_, err := post(t, &http.Client{Transport: s.Transport()}, s.URL(), "")
		require.NoError(t, err)
		assert.Equal(t, time.Hour, time.Since(began))
	})
}

func TestServerCloseEndsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{})
		ended := 0
		s := memhttp.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			time.Sleep(time.Second) // and still tidies up
			ended++
		}))
		c := &http.Client{Transport: s.Transport()}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := post(t, c, s.URL(), "")
			assert.Error(t, err)
		})
		<-entered
		s.Close()
		assert.Equal(t, 1, ended, "Close waits for handlers")
		wg.Wait()
		_, err := post(t, c, s.URL(), "")
		require.ErrorIs(t, err, memhttp.ErrClosed)
		s.Close()
	})
}

func TestServerCloseEndsHijackedConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _, err := http.NewResponseController(w).Hijack()
			assert.NoError(t, err)
		}))
		c := &http.Client{Transport: s.Transport()}
		done := make(chan error)
		go func() {
			_, err := post(t, c, s.URL(), "")
			done <- err
		}()
		synctest.Wait()
		s.Close()
		assert.Error(t, <-done)
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(echo)
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Dial(ctx, "tcp", "any:80")
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.Dialed())

		c, err := s.Dial(t.Context(), "tcp", "any:80")
		require.NoError(t, err)
		assert.Equal(t, 1, s.Open())
		require.NoError(t, c.Close())
		_ = c.Close()
		assert.Zero(t, s.Open())
	})
}
