package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"golang.org/x/net/http/httpguts"
)

// grace is how long requests on their way may take once the load has been interrupted.
const grace = time.Second

// Config says what is sent.
type Config struct {
	Target   *Target
	Schedule *Schedule
	Method   string // zero means GET, or POST with a body
	Header   http.Header
	Body     []byte
	// Timeout is how long an answer is waited for, from the sending. Zero means 10s.
	Timeout time.Duration
	// Concurrency bounds the requests on their way at once. What is due beyond it is sent
	// late, which the report says, and its latency begins when it was due. Zero means 1000.
	Concurrency int
	// Redirects is how many redirects of a request are followed, within the target. Zero
	// means that the redirect is the answer.
	Redirects int
	TLS       *tls.Config
}

// withDefaults fills in what zero values mean.
func (c Config) withDefaults() Config {
	if c.Method == "" {
		c.Method = http.MethodGet
		if len(c.Body) > 0 {
			c.Method = http.MethodPost
		}
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1000
	}
	return c
}

// Validate reports what is wrong with the load.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %v: want more than 0", c.Timeout))
	}
	if c.Concurrency < 1 || c.Concurrency > maxBurst {
		errs = append(errs, fmt.Errorf("concurrency: %d: want 1 to %d", c.Concurrency, maxBurst))
	} else if b := c.Schedule.Burst(); b > c.Concurrency {
		errs = append(errs, fmt.Errorf("concurrency: %d of the %d requests of a burst can be on their way at once: want at least %d", c.Concurrency, b, b))
	}
	if c.Redirects < 0 || c.Redirects > 20 {
		errs = append(errs, fmt.Errorf("redirects: %d: want 0 to 20", c.Redirects))
	}
	if !httpguts.ValidHeaderFieldName(c.Method) { // the same signs
		errs = append(errs, fmt.Errorf("method: %q: want one such as GET", c.Method))
	}
	for name, values := range c.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				errs = append(errs, fmt.Errorf("header: %q: want a name, a colon and a value", name))
			}
		}
	}
	return errors.Join(errs...)
}

// Progress is how far a run has come.
type Progress struct {
	Elapsed, Length                          time.Duration
	Requests                                 int // of the whole load
	Passed, Refused, Other, Errors, OnTheWay int
}

// Done returns the number of requests that have ended.
func (p Progress) Done() int { return p.Passed + p.Refused + p.Other + p.Errors }

// Run sends the load and waits for the answers. When ctx ends it sends no more, gives
// those on their way a second, and reports what there is. watch, if there is one, is
// called five times a second.
func Run(ctx context.Context, c Config, watch func(Progress)) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if watch == nil {
		watch = func(Progress) {}
	}
	cut, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cutOff) })()

	trip := &trip{next: c.Target.transport(c), cut: cut}
	defer trip.CloseIdleConnections()
	client := &http.Client{Transport: trip, Timeout: c.Timeout, CheckRedirect: c.Target.redirects(c.Redirects)}
	attacker := vegeta.NewAttacker(
		vegeta.Client(client),
		vegeta.Workers(uint64(min(c.Concurrency, max(64, c.Schedule.Burst())))),
		vegeta.MaxWorkers(uint64(c.Concurrency)),
		vegeta.MaxBody(1), // to see whether there is one; the rest is read and dropped
	)
	defer context.AfterFunc(ctx, func() { attacker.Stop() })()
	header := c.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "breakwater-load")
	}
	targets := vegeta.NewStaticTargeter(vegeta.Target{Method: c.Method, URL: c.Target.url.String(), Header: header, Body: c.Body})

	began := time.Now()
	t := newTally(c, began)
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	results := attacker.Attack(targets, pacer{c.Schedule, ctx}, 0, "")
	progress := func() {
		p := t.progress()
		p.Elapsed, p.OnTheWay = time.Since(began), int(trip.inFlight.Load())
		watch(p)
	}
	for {
		select {
		case r, ok := <-results:
			if !ok {
				progress()
				return t.report(ctx.Err() != nil, time.Since(began), int(trip.peak.Load())), nil
			}
			t.add(r)
		case <-ticks.C:
			progress()
		}
	}
}
