package orders

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// layers: three services, each of which makes three attempts, above one that fails.
func layers(w *replay.World, r *replay.Result) {
	calls := func(cfg httpx.Config, marks httpx.Hop, strip bool) int {
		var bottom atomic.Int64
		next := serve(w, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			bottom.Add(1)
			rw.WriteHeader(http.StatusServiceUnavailable)
		}))
		for range 2 {
			h := marks.Handler(forward(client(w, cfg, next)))
			if strip {
				h = without(hop.PushbackHeader, h)
			}
			next = serve(w, h)
		}
		forward(client(w, cfg, next)).ServeHTTP(new(replay.Response), request(context.Background()))
		return int(bottom.Load())
	}
	ours := httpx.Hop{Trust: func(*http.Request) bool { return true }}
	r.Row("3 layers x 3 tries: calls at the bottom",
		replay.Is(calls(httpx.Config{}, httpx.Hop{}, false), 27), replay.Is(calls(httpx.Config{Internal: true}, ours, false), 3))
	r.Row("  with the mark of the request alone", replay.None, replay.Is(calls(httpx.Config{Internal: true}, ours, true), 7))
}

func serve(w *replay.World, h http.Handler) *memhttp.Server {
	s := memhttp.NewServer(h)
	w.AtEnd(s.Close)
	return s
}

// client calls a server, in three attempts.
func client(w *replay.World, cfg httpx.Config, s *memhttp.Server) http.RoundTripper {
	p := w.Pipeline("layer", retry.Config{MaxAttempts: 3, BaseDelay: 100 * time.Millisecond, Budget: retry.NoBudget{}})
	rt, err := cfg.Transport(p, s.Transport())
	w.Must(err)
	return rt
}

func request(ctx context.Context) *http.Request {
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://layer.test/", http.NoBody)
	return r
}

// forward answers with what the next layer answers.
func forward(next http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		resp, err := next.RoundTrip(request(r.Context()))
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	})
}

// without answers without a header.
func without(key string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var answer replay.Response
		next.ServeHTTP(&answer, r)
		answer.Header().Del(key)
		rw.WriteHeader(answer.Code)
	})
}

// labelled counts the goroutines that a profile shows under the name of a pool.
func labelled(w *replay.World, pool string) (n int) {
	var profile bytes.Buffer
	w.Must(pprof.Lookup("goroutine").WriteTo(&profile, 1))
	count := 0
	for line := range strings.Lines(profile.String()) {
		if number, _, ok := strings.Cut(line, " @ "); ok {
			count, _ = strconv.Atoi(number)
		}
		if strings.HasPrefix(line, "# labels:") && strings.Contains(line, `"pool":"`+pool+`"`) {
			n += count
		}
	}
	return n
}

// The limit of each merchant, over all nodes, as breakwater.yaml has it.
const (
	nodes         = 4
	merchantRate  = 6000
	merchantBurst = 600
)

// node is one of the processes that share the limit.
type node struct {
	p     *policy.Pipeline
	calls *replay.Log
	lines *strings.Builder // of its log
}

func newNodes(w *replay.World, store *replay.Store) []*node {
	all := make([]*node, nodes)
	for i := range all {
		n := &node{calls: replay.NewLog(), lines: new(strings.Builder)}
		n.p = w.Pipelines(afterYAML, replay.Setup{Settings: noJitter, Store: store, Logger: slog.New(slog.NewTextHandler(n.lines, nil))})["orders"]
		all[i] = n
	}
	return all
}

// offer sends calls of one merchant to every node.
func offer(all []*node, perNode int, length time.Duration) {
	ctx := policy.WithCall(context.Background(), policy.Call{Key: "merchant 1"})
	fns := make([]func(), nodes)
	for i, n := range all {
		fns[i] = func() {
			replay.Traffic{Every: replay.PerSecond(perNode), From: time.Duration(1+i) * 11 * time.Microsecond, Length: length}.Offer(func(int) {
				arrived, what := time.Now(), replay.Served
				if policy.Run(ctx, n.p, func(context.Context) error { return nil }) != nil {
					what = replay.Refused
				}
				n.calls.Add(what, arrived)
			})
		}
	}
	replay.Together(fns...)
}

// total counts what all nodes let through in a stretch of time.
func total(all []*node, from, to time.Duration) (n int) {
	for _, node := range all {
		n += node.calls.From(from, to).Total(replay.Served)
	}
	return n
}

// cluster: 6,000 a second for each merchant over all nodes, a third more offered. What each
// node counted for itself was four times the limit.
func cluster(w *replay.World, r *replay.Result) {
	store := replay.NewStore(270 * time.Microsecond)
	all := newNodes(w, store)
	own := make([]*ratelimit.Bucket, nodes)
	for i := range own {
		b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(merchantRate), Burst: merchantBurst})
		w.Must(err)
		own[i] = b
	}
	offer(all, 2000, 1500*time.Millisecond)
	alone := 0
	for _, b := range own { // offered as much as it lets through
		for start, at := time.Now(), time.Duration(0); at < time.Second; at += replay.PerSecond(10_000) {
			if _, ok := b.Take(start.Add(at), 1); ok {
				alone++
			}
		}
	}
	r.Row("6,000/s for each merchant over 4 nodes: pass in a second",
		replay.Near(alone, nodes*merchantRate, nodes*merchantBurst), replay.Near(total(all, 500*time.Millisecond, 1500*time.Millisecond), merchantRate, merchantRate/50))
}

// away: the store is slow, and later well again.
func away(w *replay.World, r *replay.Result) {
	store := replay.NewStore(270 * time.Microsecond)
	all := newNodes(w, store)
	replay.Together(
		func() { offer(all, 2000, 3500*time.Millisecond) },
		func() {
			time.Sleep(500 * time.Millisecond)
			store.Set(replay.Slow)
			time.Sleep(1500 * time.Millisecond)
			store.Set(replay.Well)
		},
	)
	var longest time.Duration
	left, back := 0, 0
	for _, n := range all {
		longest = max(longest, n.calls.Quantile(1))
		left += strings.Count(n.lines.String(), "to=local")
		back += strings.Count(n.lines.String(), "to=shared")
	}
	local := all[0].calls.From(time.Second, 2*time.Second).Total(replay.Served)
	r.Row("  Redis slow: longest that a call waits for it", replay.None, replay.AtMost(longest, 50*time.Millisecond))
	r.Row("  Redis slow: pass in a second at each node", replay.None, replay.Near(local, merchantRate/nodes, merchantRate/nodes/50))
	r.Row("  lines of a node's log: the limit is local", replay.None, replay.Is(float64(left)/nodes, 1))
	r.Row("  lines of a node's log: the limit is shared again", replay.None, replay.Is(float64(back)/nodes, 1))
	r.Row("  Redis well again: pass in a second over all nodes", replay.None,
		replay.Near(total(all, 2500*time.Millisecond, 3500*time.Millisecond), merchantRate, merchantRate/50))
}

// sizes: the rules by which the numbers are chosen.
func sizes(w *replay.World, r *replay.Result) {
	s, err := config.Size(config.Measured{NodeLimit: 1000, Nodes: 4, Latency: 100 * time.Millisecond, Wait: 500 * time.Millisecond, Best: 200})
	w.Must(err)
	figure := func(name string) float64 {
		for _, f := range s.Figures {
			if f.Name == name {
				return f.Value
			}
		}
		return -1
	}
	r.Row("sizes: cluster limit of 4 nodes that bear 1,000/s", replay.None, replay.Is(figure("fleet limit by node"), 1000*4*0.8))
	r.Row("  local share of each", replay.None, replay.Is(figure("local share by node"), 800))
	r.Row("  at a time, 800/s at 100 ms (Little)", replay.None, replay.Is(figure("in flight on average"), 80))
	r.Row("  workers, of the 200 a load test found best", replay.None, replay.Between(figure("workers"), 160, 200))
	r.Row("  workers at most", replay.None, replay.Between(figure("workers at most"), 240, 300))
	r.Row("  queue: 200 workers, 100 ms, 500 ms of wait", replay.None, replay.Is(bulkhead.QueueFor(2000, 500*time.Millisecond), 1000))
	r.Row("  8 slots at 8 erlang: % refused", replay.None, replay.Near(100*bulkhead.RefusedShare(8, 8), 24, 0.5))

	// A token bucket alone: 1,000 a second that take 5 s each.
	inFlight := func(policies ...policy.Policy) int {
		p := w.Pipeline("bucket", append(policies, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 100, Initial: 1})...)
		busy := replay.NewGauge()
		replay.Traffic{Every: replay.PerSecond(1000), Length: 5500 * time.Millisecond}.Offer(func(int) {
			_ = policy.Run(context.Background(), p, func(ctx context.Context) error {
				busy.Add(1)
				defer busy.Add(-1)
				return replay.Sleep(ctx, 5*time.Second)
			})
		})
		return busy.Peak()
	}
	r.Row("1,000/s that take 5 s, limited to 1,000/s: most in flight", replay.Near(inFlight(), 5000, 5), replay.Is(inFlight(bulkhead.Semaphore{Limit: 100}), 100))
}
