package captcha

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

// Store keeps the captchas. In a stall it answers nobody.
type Store struct {
	picture []byte

	mu     sync.Mutex
	stalls time.Time // until then
}

// NewStore returns a store of one picture.
func NewStore(picture []byte) *Store { return &Store{picture: picture} }

// newStore returns a store that stalls from the start.
func newStore(stall time.Duration) *Store {
	s := NewStore([]byte("a picture"))
	s.Stall(stall)
	return s
}

// Stall has the store answer nobody for a time.
func (s *Store) Stall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = time.Now().Add(d)
}

func (s *Store) captcha(ctx context.Context) ([]byte, error) {
	answer := 5 * time.Millisecond
	s.mu.Lock()
	answer += max(time.Until(s.stalls), 0)
	s.mu.Unlock()
	timer := time.NewTimer(answer)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.picture, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// site is the process: its workers serve the captcha and, as long as there are any,
// everything else.
type site struct {
	server  *replay.Server
	captcha http.Handler

	pictures *replay.Log   // captcha requests
	pages    *replay.Log   // requests of the healthy endpoint
	held     *replay.Gauge // workers, by captcha

	mu          sync.Mutex
	statuses    map[int]int   // of captcha answers
	empty       int           // captcha answers with status 200 and nothing else
	refusedHeld time.Duration // the longest that a refused request held its worker
}

func newSite(workers int, captcha http.Handler) *site {
	return &site{
		server: replay.NewServer(workers, 10*time.Second), captcha: captcha,
		pictures: replay.NewLog(), pages: replay.NewLog(), held: replay.NewGauge(),
		statuses: map[int]int{},
	}
}

// get requests a captcha.
func (s *site) get() *replay.Response {
	arrived, r := time.Now(), new(replay.Response)
	request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/captcha"}}
	var begun time.Time
	served := s.server.Serve(func() {
		begun = time.Now()
		s.held.Add(1)
		s.captcha.ServeHTTP(r, request)
		s.held.Add(-1)
	})
	what := replay.Failed
	switch {
	case !served:
	case r.Code == http.StatusTooManyRequests, r.Code == http.StatusOK && r.Size == 0:
		what = replay.Refused
	case r.Code == http.StatusOK:
		what = replay.Served
	}
	s.pictures.Add(what, arrived)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[r.Code]++
	if what == replay.Refused {
		s.refusedHeld = max(s.refusedHeld, time.Since(begun))
		if r.Code == http.StatusOK {
			s.empty++
		}
	}
	return r
}

// page requests something else, which takes 20 ms and has nothing to do with captchas.
func (s *site) page() {
	arrived, what := time.Now(), replay.Failed
	if s.server.Serve(func() { time.Sleep(20 * time.Millisecond) }) {
		what = replay.Served
	}
	s.pages.Add(what, arrived)
}
