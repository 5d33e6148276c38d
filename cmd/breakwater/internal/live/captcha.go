package live

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/examples/incidents/captcha"
	"github.com/breakwater-go/breakwater/policy"
)

//go:embed page.html
var page []byte

//go:embed page.js
var pageScript []byte

const (
	workers = 200 // of each process, as in the incident
	stall   = 40 * time.Second

	picture = `<svg xmlns="http://www.w3.org/2000/svg" width="160" height="60"><rect width="160" height="60" fill="#dde"/>` +
		`<text x="22" y="42" font-family="serif" font-size="36" font-style="italic" fill="#225">w 7 k Q</text></svg>`
)

// Captcha is the login page of the incident, twice: as it was, and behind a pipeline. Each is a
// process of its own, with 200 workers and its own address; they share the store.
type Captcha struct {
	Before, After string // addresses of the pages

	stage    *Stage
	settings []string
	logger   *slog.Logger
	store    *captcha.Store
	stop     func() // of the old endpoint

	current atomic.Pointer[http.Handler] // the endpoint behind the pipeline
	was, is *process
	mu      sync.Mutex // one reset at a time
}

// NewCaptcha starts it. Settings are changes to the file, such as captcha.ratelimit.Rate=1/s;
// the page behind the pipeline is served at addr, by default at any free port. It runs until
// the stage is closed.
func NewCaptcha(ctx context.Context, stage *Stage, addr string, logger *slog.Logger, settings ...string) (*Captcha, error) {
	c := &Captcha{stage: stage, settings: settings, logger: logger, store: captcha.NewStore([]byte(picture))}
	if err := c.reset(ctx); err != nil {
		return nil, err
	}
	old, stop := captcha.Before(c.store)
	c.stop = stop
	c.was = c.process("as it was", old)
	c.is = c.process("behind a pipeline", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*c.current.Load()).ServeHTTP(w, r) }))
	var errs [2]error
	c.Before, errs[0] = stage.Serve(ctx, "", c.was.handler)
	c.After, errs[1] = stage.Serve(ctx, addr, c.is.handler)
	if err := errors.Join(errs[:]...); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends what the endpoints have of their own.
func (c *Captcha) Close() { c.stop() }

// Tallies returns what both processes have answered.
func (c *Captcha) Tallies() (before, after Tally) { return c.was.tally(), c.is.tally() }

// reset makes the pipeline anew, as at the start of a process.
func (c *Captcha) reset(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := config.Load(ctx, config.Bytes("breakwater.yaml", config.LayerFile, captcha.Config()), config.Flags(c.settings...))
	if err != nil {
		return err
	}
	const name = "captcha"
	if err := c.stage.Registry.Remove(ctx, name); err != nil {
		return err
	}
	var specs []policy.Policy
	for _, d := range s.Dependencies {
		if d.Name == name {
			specs = d.Specs()
		}
	}
	p, err := c.stage.Registry.New(name, specs...)
	if err != nil {
		return err
	}
	h := captcha.After(c.store, p, c.logger)
	c.current.Store(&h)
	return nil
}

// process is one of the two: its workers serve captchas and everything else.
type process struct {
	handler http.Handler
	name    string
	captcha http.Handler
	workers chan struct{}

	pictures, empty, tooMany, failed, healthy, hungUp atomic.Int64
}

// Tally is what a process has answered.
type Tally struct {
	Name     string `json:"name"`
	Busy     int    `json:"busy"`     // workers
	Workers  int    `json:"workers"`  // busy or not
	Pictures int64  `json:"pictures"` // captcha requests: 200 with a picture
	Empty    int64  `json:"empty"`    // 200 without one
	TooMany  int64  `json:"tooMany"`  // 429
	Failed   int64  `json:"failed"`   // any other status
	Healthy  int64  `json:"healthy"`  // answers of the endpoint beside it
	HungUp   int64  `json:"hungUp"`   // requests whose client left before it got a worker
}

func (p *process) tally() Tally {
	return Tally{
		Name: p.name, Busy: len(p.workers), Workers: cap(p.workers),
		Pictures: p.pictures.Load(), Empty: p.empty.Load(), TooMany: p.tooMany.Load(), Failed: p.failed.Load(),
		Healthy: p.healthy.Load(), HungUp: p.hungUp.Load(),
	}
}

func (c *Captcha) process(name string, endpoint http.Handler) *process {
	p := &process{name: name, captcha: endpoint, workers: make(chan struct{}, workers)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self'; connect-src 'self'")
		_, _ = w.Write(page)
	})
	mux.HandleFunc("GET /page.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(pageScript)
	})
	mux.HandleFunc("GET /captcha", p.serve(p.answer))
	mux.HandleFunc("GET /healthy", p.serve(p.other))
	mux.HandleFunc("GET /tally", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.tally())
	})
	mux.HandleFunc("POST /stall", func(w http.ResponseWriter, _ *http.Request) {
		c.store.Stall(stall)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, r *http.Request) {
		// Whoever asked may be gone by the time that the old pipeline is, and the others want a new one.
		if err := c.reset(context.WithoutCancel(r.Context())); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	p.handler = http.NewCrossOriginProtection().Handler(mux)
	return p
}

// serve calls a handler on a worker. Its client may leave while there is none.
func (p *process) serve(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.workers <- struct{}{}:
		case <-r.Context().Done():
			p.hungUp.Add(1)
			return
		}
		defer func() { <-p.workers }()
		h(w, r)
	}
}

// answer calls the endpoint and counts what it answers.
func (p *process) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "no-store")
	a := &answer{ResponseWriter: w}
	p.captcha.ServeHTTP(a, r)
	switch {
	case a.status == http.StatusTooManyRequests:
		p.tooMany.Add(1)
	case a.status != http.StatusOK:
		p.failed.Add(1)
	case a.size == 0:
		p.empty.Add(1)
	default:
		p.pictures.Add(1)
	}
}

// other is what else the process has to do, which takes 20 ms.
func (p *process) other(w http.ResponseWriter, r *http.Request) {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		p.healthy.Add(1)
		_, _ = fmt.Fprintln(w, "well")
	case <-r.Context().Done():
	}
}

// answer notes what is written.
type answer struct {
	http.ResponseWriter

	status, size int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.size += n
	return n, err
}
