package httpx_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// perHost makes a transport with a pipeline for each host.
func perHost(tb testing.TB, reg *policy.Registry, cfg httpx.HostsConfig, next http.RoundTripper) (*httpx.Hosts, *httpx.RoundTripper) {
	tb.Helper()
	hosts, err := httpx.NewHosts(reg, cfg)
	require.NoError(tb, err)
	return hosts, transport(tb, httpx.Config{Choose: hosts}, nil, next)
}

// names lists the pipelines of a registry.
func names(reg *policy.Registry) []string {
	var list []string
	for p := range reg.All() {
		list = append(list, p.Name())
	}
	return list
}

// byHost answers 503 for hosts that begin with "ill", and 200 for others.
var byHost = tripper(func(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Host, "ill") {
		return reply(req, 503, "ill"), nil
	}
	return reply(req, 200, "well"), nil
})

// ask sends a request to a host and reads its answer.
func ask(t *testing.T, rt http.RoundTripper, host string) error {
	t.Helper()
	resp, err := rt.RoundTrip(get(t.Context(), t, "http://"+host+"/"))
	if err == nil {
		finish(t, resp)
	}
	return err
}

// A host that is ill opens its own breaker and nobody else's.
func TestHostsAreApart(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	hosts, rt := perHost(t, &reg, httpx.HostsConfig{Policies: []policy.Policy{breaker.Config{MinCalls: 2}}}, byHost)
	for range 2 {
		require.NoError(t, ask(t, rt, "ill.test"))
		require.NoError(t, ask(t, rt, "well.test"))
	}
	require.ErrorIs(t, ask(t, rt, "ILL.test:80"), breaker.ErrOpen, "it is the same host")
	require.NoError(t, ask(t, rt, "ill.test:81"), "it is another")
	require.NoError(t, ask(t, rt, "well.test"))
	assert.Equal(t, []string{"host:ill.test", "host:ill.test:81", "host:other", "host:well.test"}, names(&reg))
	assert.Equal(t, httpx.HostsSnapshot{Own: 3, MaxHosts: 100}, hosts.Snapshot())
	for p := range reg.All() {
		assert.Equal(t, p.Name() == "host:other", p.Snapshot().Derived == 0, p.Name())
	}
}

// However many hosts a user or a chain of redirects comes up with, the number of pipelines
// is bounded.
func TestHostsAreBounded(t *testing.T) {
	t.Parallel()
	next := tripper(func(req *http.Request) (*http.Response, error) {
		resp := reply(req, 302, "")
		n, _ := strconv.Atoi(strings.TrimSuffix(req.URL.Host, ".test"))
		resp.Header.Set("Location", fmt.Sprintf("http://%d.test/", n+1))
		return resp, nil
	})
	var reg policy.Registry
	hosts, rt := perHost(t, &reg, httpx.HostsConfig{MaxHosts: 3}, next)
	client := &http.Client{Transport: rt, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) == 200 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Do(get(t.Context(), t, "http://1.test/"))
	require.NoError(t, err)
	finish(t, resp)
	require.NoError(t, ask(t, rt, "other"))
	require.NoError(t, ask(t, rt, strings.Repeat("long.", 40)+"test"))
	require.NoError(t, ask(t, rt, "münchen.test"))
	assert.Equal(t, []string{"host:1.test", "host:2.test", "host:3.test", "host:other"}, names(&reg))
	assert.Equal(t, httpx.HostsSnapshot{Own: 3, MaxHosts: 3, Overflowed: 200}, hosts.Snapshot())
	rest, _ := reg.Get("host:other")
	assert.EqualValues(t, 200, rest.Snapshot().Calls[policy.Success])
}

// Who is not accepted shares the pipeline of the rest, and takes no place.
func TestHostsAccept(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	_, rt := perHost(t, &reg, httpx.HostsConfig{
		Prefix: "to ", Accept: func(host string) bool { return strings.HasSuffix(host, ".internal") },
	}, byHost)
	for _, host := range []string{"evil.test", "a.internal", "A.internal.", "internal"} {
		require.NoError(t, ask(t, rt, host))
	}
	assert.Equal(t, []string{"to a.internal", "to other"}, names(&reg))
}

// A pipeline that was written down for a host is used, however many there are; when it
// goes, the host is one like the others.
func TestHostsThatAreWrittenDown(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p, err := reg.New("host:pay.test", &gate{full: true})
	require.NoError(t, err)
	_, rt := perHost(t, &reg, httpx.HostsConfig{MaxHosts: 1, Accept: func(host string) bool { return host != "a.test" }}, byHost)
	require.NoError(t, ask(t, rt, "a.test"))
	require.ErrorIs(t, ask(t, rt, "pay.test"), policy.ErrRejected)
	require.ErrorIs(t, ask(t, rt, "pay.test"), policy.ErrRejected)
	assert.Zero(t, p.Snapshot().Derived)
	require.NoError(t, reg.Remove(t.Context(), "host:pay.test"))
	require.NoError(t, ask(t, rt, "pay.test"))
	got, ok := reg.Get("host:pay.test")
	require.True(t, ok)
	assert.Equal(t, 1, got.Snapshot().Derived)
	require.NoError(t, ask(t, rt, "b.test"))
	assert.Equal(t, []string{"host:other", "host:pay.test"}, names(&reg))
}

// Requests that come first together make one pipeline.
func TestHostsMakeOnePipeline(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	var made sync.Map
	_, rt := perHost(t, &reg, httpx.HostsConfig{Policies: []policy.Policy{bulkhead.Semaphore{Limit: 100}}}, tripper(func(req *http.Request) (*http.Response, error) {
		p, _ := reg.Get("host:" + req.URL.Host)
		made.Store(p, true)
		return reply(req, 200, ""), nil
	}))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { assert.NoError(t, ask(t, rt, "a.test")) })
	}
	wg.Wait()
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	assert.Equal(t, 1, n)
	p, _ := reg.Get("host:a.test")
	assert.EqualValues(t, 50, p.Snapshot().Calls[policy.Success])
}

// A host that nobody talks to loses its pipeline, between one and one and a half times
// IdleAfter after the last request, and gets a new one when it is wanted again.
func TestIdleHostsAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		hosts, rt := perHost(t, &reg, httpx.HostsConfig{MaxHosts: 2, IdleAfter: time.Minute, Policies: []policy.Policy{breaker.Config{}}}, byHost)
		require.NoError(t, ask(t, rt, "a.test"))
		time.Sleep(time.Second)
		require.NoError(t, ask(t, rt, "b.test"))
		for range 5 {
			time.Sleep(40 * time.Second)
			require.NoError(t, ask(t, rt, "b.test"))
		}
		synctest.Wait()
		assert.Equal(t, []string{"host:b.test", "host:other"}, names(&reg))
		require.NoError(t, ask(t, rt, "c.test"), "it has the place of the first")
		assert.Equal(t, httpx.HostsSnapshot{Own: 2, MaxHosts: 2, Removed: 1}, hosts.Snapshot())

		before, _ := reg.Get("host:c.test")
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		assert.Contains(t, names(&reg), "host:c.test")
		time.Sleep(30*time.Second + time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []string{"host:other"}, names(&reg))
		require.NoError(t, ask(t, rt, "c.test"))
		after, _ := reg.Get("host:c.test")
		assert.NotSame(t, before, after)
		_, err := policy.Do(t.Context(), before, func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, policy.ErrClosed)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, httpx.HostsSnapshot{MaxHosts: 2, Removed: 4}, hosts.Snapshot())
	})
}

// What is in use, or knows something, stays: a request on its way, one that waits for its
// next attempt and holds nothing, a body, an open breaker, a command.
func TestHostsInUseStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		var waited atomic.Bool
		next := tripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Host == "slow.test":
				time.Sleep(time.Hour)
			case req.URL.Host == "wait.test" && !waited.Swap(true):
				resp := reply(req, 429, "")
				resp.Header.Set("Retry-After", "3600")
				return resp, nil
			}
			return byHost(req)
		})
		hosts, err := httpx.NewHosts(&reg, httpx.HostsConfig{
			IdleAfter: time.Minute,
			Policies:  []policy.Policy{retries(2, time.Second), bulkhead.Semaphore{}, breaker.Config{MinCalls: 1, OpenFor: time.Hour}},
		})
		require.NoError(t, err)
		rt := transport(t, httpx.Config{Choose: hosts, MaxRetryAfter: time.Hour}, nil, next)
		done := make(chan error, 2)
		go func() { done <- ask(t, rt, "slow.test") }()
		go func() { done <- ask(t, rt, "wait.test") }()
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://body.test/"))
		require.NoError(t, err)
		require.ErrorIs(t, ask(t, rt, "ill.test"), breaker.ErrOpen, "what the second attempt finds")
		require.NoError(t, ask(t, rt, "held.test"))
		held, _ := reg.Get("host:held.test")
		for _, c := range held.Controls() {
			if c.Commander != nil {
				c.Commander.ForceClosed("a test", 0)
			}
		}
		require.NoError(t, ask(t, rt, "idle.test"))
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"host:body.test", "host:held.test", "host:ill.test", "host:other", "host:slow.test", "host:wait.test"}, names(&reg))
		finish(t, resp)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []string{"host:held.test", "host:other"}, names(&reg))
		require.NoError(t, reg.Close(t.Context()))
	})
}

func TestHostsReload(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	hosts, rt := perHost(t, &reg, httpx.HostsConfig{Policies: []policy.Policy{bulkhead.Semaphore{Limit: 1}}}, byHost)
	resp, err := rt.RoundTrip(get(t.Context(), t, "http://a.test/"))
	require.NoError(t, err)
	require.ErrorIs(t, ask(t, rt, "a.test"), bulkhead.ErrFull)

	require.ErrorContains(t, hosts.Reload(bulkhead.Semaphore{Limit: -1}), "host:a.test.bulkhead.Limit")
	require.ErrorIs(t, ask(t, rt, "a.test"), bulkhead.ErrFull)
	pool, err := bulkhead.NewPool("", bulkhead.Pool{})
	require.NoError(t, err)
	require.ErrorContains(t, hosts.Reload(pool), "hosts.Policies")
	require.NoError(t, pool.Close(t.Context()))

	require.NoError(t, hosts.Reload(bulkhead.Semaphore{Limit: 2}))
	require.NoError(t, ask(t, rt, "a.test"), "the permit that is out counts on")
	require.NoError(t, ask(t, rt, "b.test"))
	finish(t, resp)
	for _, name := range []string{"host:a.test", "host:b.test", "host:other"} {
		p, ok := reg.Get(name)
		require.True(t, ok)
		assert.Equal(t, 2, p.Snapshot().Policies[0].Bulkhead.Limit, name)
		assert.Equal(t, name == "host:other", p.Snapshot().Derived == 0)
	}
}

func TestHostsClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		hosts, rt := perHost(t, &reg, httpx.HostsConfig{Policies: []policy.Policy{bulkhead.Pool{Workers: 1, Queue: 1}}}, byHost)
		require.NoError(t, ask(t, rt, "a.test"))
		require.NoError(t, hosts.Close(t.Context()))
		require.NoError(t, hosts.Close(t.Context()))
		assert.Empty(t, names(&reg))
		for _, host := range []string{"a.test", "b.test"} {
			require.ErrorIs(t, ask(t, rt, host), policy.ErrClosed)
		}
		assert.Empty(t, names(&reg))
		time.Sleep(time.Hour)
	})
}

func TestNewHostsErrors(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	pool, err := bulkhead.NewPool("", bulkhead.Pool{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close(context.Background())) }) //nolint:usetesting // t.Context has ended
	_, err = httpx.NewHosts(nil, httpx.HostsConfig{})
	require.ErrorContains(t, err, "hosts.reg")
	_, err = httpx.NewHosts(&reg, httpx.HostsConfig{MaxHosts: -1, IdleAfter: 1, Policies: []policy.Policy{pool}})
	for _, field := range []string{"hosts.MaxHosts", "hosts.IdleAfter", "hosts.Policies"} {
		require.ErrorContains(t, err, field)
	}
	_, err = httpx.NewHosts(&reg, httpx.HostsConfig{Policies: []policy.Policy{breaker.Config{FailureRatio: 2}}})
	require.ErrorContains(t, err, "host:other.breaker.FailureRatio")
	hosts, err := httpx.NewHosts(&reg, httpx.HostsConfig{})
	require.NoError(t, err)
	assert.Equal(t, httpx.HostsConfig{Prefix: "host:", MaxHosts: 100, IdleAfter: 10 * time.Minute}, hosts.Config())
	_, err = httpx.NewHosts(&reg, httpx.HostsConfig{})
	require.ErrorIs(t, err, policy.ErrDuplicate)
	_, err = httpx.NewHosts(&reg, httpx.HostsConfig{Prefix: "b:"})
	require.NoError(t, err)
	require.NoError(t, reg.Close(t.Context()))
	_, err = httpx.NewHosts(&reg, httpx.HostsConfig{Prefix: "c:"})
	require.ErrorIs(t, err, policy.ErrClosed)
}

// While hosts come and go as fast as they can, no request is refused by a pipeline that
// was removed under it.
func TestHostsConcurrentSafe(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	hosts, rt := perHost(t, &reg, httpx.HostsConfig{
		MaxHosts: 4, IdleAfter: time.Millisecond, Policies: []policy.Policy{bulkhead.Semaphore{Limit: 100}},
	}, byHost)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				if !assert.NoError(t, ask(t, rt, strconv.Itoa((i/20+g/4)%7)+".test")) {
					return
				}
				if i%20 == 0 {
					assert.LessOrEqual(t, hosts.Snapshot().Own, 4)
					if g == 0 {
						assert.NoError(t, hosts.Reload(bulkhead.Semaphore{Limit: 100 + i}))
					}
					time.Sleep(time.Millisecond) // others may become idle
				}
			}
		})
	}
	wg.Wait()
	assert.Positive(t, hosts.Snapshot().Removed)
	require.NoError(t, hosts.Close(t.Context()))
	assert.Empty(t, names(&reg))
}

func TestChooserFunc(t *testing.T) {
	t.Parallel()
	full, free := pipe(t, &gate{full: true}), pipe(t)
	rt := transport(t, httpx.Config{Choose: httpx.ChooserFunc(func(req *http.Request) *policy.Pipeline {
		switch req.URL.Host {
		case "full.test":
			return full
		case "free.test":
			return free
		}
		return nil
	})}, pipe(t, &gate{full: true}), byHost)
	require.ErrorIs(t, ask(t, rt, "full.test"), policy.ErrRejected)
	require.NoError(t, ask(t, rt, "free.test"))
	require.ErrorIs(t, ask(t, rt, "default.test"), policy.ErrRejected)
}

// The body of a response that nobody closed is told under the name of its pipeline.
func TestHostsAbandonedBody(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	hosts, err := httpx.NewHosts(&reg, httpx.HostsConfig{})
	require.NoError(t, err)
	told := make(chan httpx.AbandonedBody, 1)
	rt := transport(t, httpx.Config{Choose: hosts, OnAbandoned: func(b httpx.AbandonedBody) { told <- b }}, nil,
		tripper(func(req *http.Request) (*http.Response, error) {
			return stream(req, 200, io.NopCloser(strings.NewReader("x"))), nil
		}))
	func() {
		_, err := rt.RoundTrip(get(t.Context(), t, "http://a.test/")) //nolint:bodyclose // the fault under test
		require.NoError(t, err)
	}()
	assert.Equal(t, "host:a.test", collect(t, told).Dependency)
}
