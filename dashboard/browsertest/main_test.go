package browsertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

const chromium = "/usr/bin/chromium"

// browser is the one browser of all tests; each opens a tab of its own.
var browser context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		return 0 // minutes of a browser are not for a quick check
	}
	if _, err := os.Stat(chromium); err != nil {
		fmt.Fprintln(os.Stderr, "no "+chromium+": the tests with a browser are left out")
		return 0
	}
	profile, err := os.MkdirTemp("", "breakwater-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(profile) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(profile),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("hide-scrollbars", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil { // alone and without a timeout, or the browser ends with it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	browser = ctx //nolint:fatcontext // chromedp keeps a browser in a context
	return m.Run()
}

var errSick = errors.New("dial tcp 10.0.0.7:8080: connection refused (GET http://svc:secret@inventory/stock?token=abc)")

// world is a process with dependencies that are called, some of them sick.
type world struct {
	registry *policy.Registry
	url      string
	srv      *httptest.Server
	sick     sync.Map // names of the dependencies that fail
	stop     chan struct{}
	calls    sync.WaitGroup
}

// newWorld starts the calls and serves the dashboard.
func newWorld(t *testing.T, cfg dashboard.Config) *world {
	t.Helper()
	w := &world{registry: new(policy.Registry), stop: make(chan struct{})}
	budget := retry.Config{MaxAttempts: 3, BaseDelay: 5 * time.Millisecond, Budget: retry.BudgetConfig{Ratio: 0.1, MinPerSecond: 1, Window: 5 * time.Second}}
	guard := breaker.Config{FailureRatio: 0.5, SlowAfter: 400 * time.Millisecond, SlowRatio: 0.6, Window: 10 * time.Second, MinCalls: 20, OpenFor: 15 * time.Second, Probes: 3}
	for _, dep := range []struct {
		name  string
		every time.Duration
		took  time.Duration
		with  []policy.Policy
	}{
		{"inventory", 12 * time.Millisecond, 18 * time.Millisecond, []policy.Policy{
			budget,
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(400), Burst: 200},
			bulkhead.Semaphore{Limit: 24, MaxWait: 50 * time.Millisecond, MaxWaiters: 24},
			guard,
			policy.Timeouts{Total: time.Second, Attempt: 300 * time.Millisecond},
			fallback.Value("in stock"),
		}},
		{"payments/charge", 16 * time.Millisecond, 260 * time.Millisecond, []policy.Policy{bulkhead.Semaphore{Limit: 8, MaxWait: 20 * time.Millisecond, MaxWaiters: 16}, guard}},
		{"payments/refund", 300 * time.Millisecond, 90 * time.Millisecond, []policy.Policy{budget, bulkhead.Semaphore{Limit: 4}, guard}},
		{"search", 10 * time.Millisecond, 12 * time.Millisecond, []policy.Policy{ratelimit.TokenBucket{Rate: ratelimit.PerSecond(70), Burst: 10}, guard}},
		{"catalogue", 20 * time.Millisecond, 8 * time.Millisecond, []policy.Policy{budget, bulkhead.Semaphore{Limit: 32}, guard}},
		{"shards", 25 * time.Millisecond, 6 * time.Millisecond, []policy.Policy{breaker.Keyed{Config: guard}}},
		{"mail", 150 * time.Millisecond, 45 * time.Millisecond, []policy.Policy{bulkhead.Pool{Workers: 4, Queue: 16}, ratelimit.Pacer{Rate: ratelimit.PerSecond(20), MaxWait: time.Second}}},
	} {
		p, err := w.registry.New(dep.name, dep.with...)
		require.NoError(t, err)
		w.calls.Go(func() { w.load(p, dep.every, dep.took) })
	}
	d, err := dashboard.New(w.registry, cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/breakwater/", d)
	srv := httptest.NewServer(mux)
	w.url, w.srv = srv.URL+"/breakwater/", srv
	t.Cleanup(func() {
		close(w.stop)
		w.calls.Wait()
		d.Close()
		srv.CloseClientConnections()
		srv.Close()
		require.NoError(t, w.registry.Close(context.WithoutCancel(t.Context())))
	})
	return w
}

// load calls a dependency at a steady rate.
func (w *world) load(p *policy.Pipeline, every, took time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		w.calls.Go(func() {
			ctx := policy.WithCall(context.Background(), policy.Call{Key: fmt.Sprintf("<b>shard</b> %d", i%5)})
			_, _ = policy.Do(ctx, p, func(ctx context.Context) (string, error) {
				wait := took + time.Duration(i*7919%97)*took/200
				_, sick := w.sick.Load(p.Name())
				if sick {
					wait *= 6
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return "", ctx.Err()
				}
				if sick && i%4 != 0 {
					return "", errSick
				}
				return "ok", nil
			})
		})
	}
}

// breakerOf returns what the registry says of a breaker.
func (w *world) breakerOf(t *testing.T, name string) policy.BreakerSnapshot {
	t.Helper()
	p, ok := w.registry.Get(name)
	require.True(t, ok)
	for _, s := range p.Snapshot().Policies {
		if s.Breaker != nil {
			return *s.Breaker
		}
	}
	require.Fail(t, "no breaker")
	return policy.BreakerSnapshot{}
}

// everybody lets everybody on this machine act and see everything.
func everybody(r *http.Request) (dashboard.Viewer, bool) {
	return dashboard.Viewer{Name: "ann", Act: true, Private: true}, dashboard.Loopback(r)
}

// tab is a page in the browser.
type tab struct {
	*testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps a tab in a context
}

func open(t *testing.T, url string, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	ctx, stop := context.WithTimeout(ctx, 90*time.Second)
	t.Cleanup(stop)
	p := &tab{t, ctx}
	p.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return p
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	require.NoError(p, chromedp.Do(p.ctx, actions...))
}

// js returns the value of an expression in the page.
func js[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p, err, "%.300s", expression)
	return v
}

// await waits until an expression is true.
func (p *tab) await(expression string) {
	p.Helper()
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ok {
			return
		}
		last = err
	}
	require.Fail(p, "it never came true: "+expression, "%v\n%s", last, js[string](p, "document.body.innerText"))
}

func quote(s string) string {
	b, _ := json.Marshal(s) //nolint:errchkjson // a string can always be written
	return string(b)
}

// text returns what an element shows.
func (p *tab) text(selector string) string {
	p.Helper()
	return js[string](p, "document.querySelector("+quote(selector)+")?.innerText ?? ''")
}

func (p *tab) click(selector string) {
	p.Helper()
	p.await("document.querySelector(" + quote(selector) + ")")
	js[bool](p, "document.querySelector("+quote(selector)+").click(), true")
}

// fill writes into a field as a person does.
func (p *tab) fill(selector, value string) {
	p.Helper()
	p.await("document.querySelector(" + quote(selector) + ")")
	js[bool](p, `(() => { const e = document.querySelector(`+quote(selector)+`);
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set.call(e, `+quote(value)+`);
		e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
}
