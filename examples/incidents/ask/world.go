package ask

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// dependency finds answers: ten at a time, each in 200 ms. What comes while ten are being
// found waits its turn, also when nobody waits for it any more.
type dependency struct {
	broken func() bool

	mu   sync.Mutex
	free [10]time.Time
}

func newDependency(broken func() bool) *dependency { return &dependency{broken: broken} }

func well() bool { return false }

var errBroken = errors.New("answers: out of order")

func (d *dependency) ask(ctx context.Context) (string, error) {
	if d.broken() {
		return "", errBroken
	}
	d.mu.Lock()
	next, now := 0, time.Now()
	for i, at := range d.free {
		if at.Before(d.free[next]) {
			next = i
		}
	}
	begin := now
	if d.free[next].After(begin) {
		begin = d.free[next]
	}
	end := begin.Add(200 * time.Millisecond)
	d.free[next] = end
	d.mu.Unlock()
	if err := replay.Sleep(ctx, end.Sub(now)); err != nil {
		return "", err
	}
	return "an answer", nil
}

// get asks an instance.
func get(instance http.Handler, user string) *replay.Response {
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/ask"}, Header: http.Header{}}
	r.Header.Set("User", user)
	w := new(replay.Response)
	instance.ServeHTTP(w, r)
	return w
}

// what became of a request.
func what(w *replay.Response) replay.Outcome {
	switch {
	case w.Code == http.StatusOK && w.Body == "an answer":
		return replay.Served
	case w.Code == http.StatusOK:
		return replay.Degraded
	case w.Code == http.StatusTooManyRequests, w.Code == http.StatusServiceUnavailable:
		return replay.Refused
	}
	return replay.Failed
}
