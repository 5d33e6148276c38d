package ocr

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
)

// What the vendor says.
var (
	errQuota     = errors.New("vendor: quota of 10 per second exceeded")
	errBusy      = errors.New("vendor: busy")
	errMalformed = errors.New("vendor: cannot read the file")
	errAuth      = errors.New("vendor: no valid key")
)

// document is a file, and what the vendor makes of it: nil is text.
type document struct{ err error }

// vendor recognizes text in 0.8 s, and some microseconds that differ, so that no two
// answers come at one instant. It allows 10 calls in any second. Who sends more has 5 for
// the next 10 s.
type vendor struct {
	calls *replay.Log
	over  func(context.Context) error // a document that can be read

	mu     sync.Mutex
	rnd    *rand.Rand
	recent []time.Time // of the last second, those that were allowed
	fewer  time.Time   // until then 5 are
	quota  int         // errors
}

func newVendor(w *replay.World) *vendor {
	v := &vendor{calls: replay.NewLog(), rnd: rand.New(rand.NewPCG(1, 2))}
	v.over = w.Remote(func(ctx context.Context) error { return v.answer(ctx, document{}) })
	return v
}

func (v *vendor) scan(ctx context.Context, doc document) error {
	if doc == (document{}) {
		return v.over(ctx)
	}
	return v.answer(ctx, doc)
}

func (v *vendor) answer(ctx context.Context, doc document) error {
	now := time.Now()
	v.calls.Add(replay.Served, now)
	extra, ok := v.within(now)
	if !ok {
		_ = replay.Sleep(ctx, 50*time.Millisecond+extra)
		return errQuota
	}
	if err := replay.Sleep(ctx, 800*time.Millisecond+extra); err != nil {
		time.Sleep(time.Microsecond) // the caller knows first
		return err
	}
	return doc.err
}

func (v *vendor) within(now time.Time) (extra time.Duration, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	extra = time.Duration(v.rnd.IntN(10_000))
	for len(v.recent) > 0 && now.Sub(v.recent[0]) >= time.Second {
		v.recent = v.recent[1:]
	}
	allowed := 10
	if now.Before(v.fewer) {
		allowed = 5
	}
	if len(v.recent) >= allowed {
		if allowed == 10 {
			v.fewer = now.Add(10 * time.Second)
		}
		v.quota++
		return extra, false
	}
	v.recent = append(v.recent, now)
	return extra, true
}

// client is what asks the vendor, before or after.
type client interface {
	realtime(ctx context.Context, doc document) error
	batch(ctx context.Context, doc document) error
}

// site is the process with its 800 workers. People upload files, of which 170 are on their
// way at a time; some have text recognized while they wait, and batches do too.
type site struct {
	client  client
	vendor  *vendor
	workers *replay.Server
	ocr     *replay.Gauge // workers

	realtime, batch, uploads *replay.Log

	log      *slog.Logger
	mu       sync.Mutex
	lines    strings.Builder // of the log
	answers  int             // 429 with Retry-After
	refused  int
	refusals map[string]int // by lane and reason
}

func newSite(c client, v *vendor) *site {
	s := &site{
		client: c, vendor: v, workers: replay.NewServer(800, time.Second), ocr: replay.NewGauge(),
		realtime: replay.NewLog(), batch: replay.NewLog(), uploads: replay.NewLog(), refusals: map[string]int{},
	}
	s.log = slog.New(slog.NewTextHandler(&s.lines, nil))
	return s
}

// uploadTime is how long an upload holds its worker.
const uploadTime = 10 * time.Second

func (s *site) upload() {
	arrived, what := time.Now(), replay.Failed
	if s.workers.Serve(func() { time.Sleep(uploadTime) }) {
		what = replay.Served
	}
	s.uploads.Add(what, arrived)
}

func (s *site) people(doc document) { s.recognize(s.realtime, "realtime", s.client.realtime, doc) }

func (s *site) batches(doc document) { s.recognize(s.batch, "batch", s.client.batch, doc) }

func (s *site) recognize(log *replay.Log, lane string, scan func(context.Context, document) error, doc document) {
	arrived, what := time.Now(), replay.Failed
	s.workers.Serve(func() {
		s.ocr.Add(1)
		defer s.ocr.Add(-1)
		err := scan(context.Background(), doc)
		if err == nil {
			what = replay.Served
		}
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			what = replay.Refused
			s.answer(lane, re)
		}
	})
	log.Add(what, arrived)
}

func (s *site) answer(lane string, re *policy.RejectedError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var w replay.Response
	refuse(&w, s.log, re)
	s.refused++
	s.refusals[lane+" "+re.Reason.String()]++
	if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "" {
		s.answers++
	}
}
