package ocr

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/policy"
)

// bypass: the vendor is busy, and what fails is tried again. Before that went past the
// limiter.
func bypass(w *replay.World, r *replay.Result) {
	was := old(w)
	now, _ := as(w)
	load := func(s *site) {
		replay.Traffic{Every: replay.PerSecond(10), From: 50 * time.Millisecond, Length: 20 * time.Second}.Offer(func(int) { s.people(document{err: errBusy}) })
	}
	replay.Together(func() { load(was) }, func() { load(now) })
	r.Row("vendor busy, 10/s: most calls in a second, retries included", replay.AtLeast(was.vendor.calls.Most(), 25), replay.AtMost(now.vendor.calls.Most(), 10))
}

// rules: what is tried again, and when.
func rules(w *replay.World, r *replay.Result) {
	tries := func(doc document, hang bool) string {
		_, a := as(w)
		start := time.Now()
		var at []time.Duration
		_ = policy.Run(context.Background(), a.lanes["realtime"], func(ctx context.Context) error {
			at = append(at, time.Since(start))
			if hang {
				err := replay.Sleep(ctx, time.Hour)
				return err
			}
			return doc.err
		})
		text := strconv.Itoa(len(at))
		if len(at) > 1 {
			gap := at[1] - at[0]
			if hang {
				gap -= 3 * time.Second // the timeout of the first
			}
			text += " after " + gap.Round(time.Millisecond).String()
		}
		return text
	}
	r.Row("tries of a document: quota exceeded", replay.None, replay.Says(tries(document{err: errQuota}, false), "1"))
	r.Row("  vendor busy", replay.None, replay.Says(tries(document{err: errBusy}, false), "2 after 500ms"))
	r.Row("  timeout", replay.None, replay.Says(tries(document{}, true), "2 after 0s"))
	r.Row("  cannot be read", replay.None, replay.Says(tries(document{err: errMalformed}, false), "1"))
	r.Row("  no valid key", replay.None, replay.Says(tries(document{err: errAuth}, false), "1"))
}

// badFile: a file that cannot be read was sent every 20 s, for 20 minutes.
func badFile(w *replay.World, r *replay.Result) {
	was, sent := newVendor(w), 0
	for range 60 {
		sent++
		begun := time.Now()
		if was.scan(context.Background(), document{err: errMalformed}) == nil {
			break
		}
		time.Sleep(20*time.Second - time.Since(begun))
	}
	_, a := as(w)
	err := a.realtime(context.Background(), document{err: errMalformed})
	if !errors.Is(err, errMalformed) {
		w.Must(fmt.Errorf("want the error of the vendor, have %w", err))
	}
	r.Row("a file that cannot be read: sent in 20 minutes", replay.Is(sent, 60), replay.Is(a.vendor.calls.Total(), 1))
}

// lostTokens: eight come at one instant, and there are two slots. Before, each took a token,
// and then looked for a slot.
func lostTokens(w *replay.World, r *replay.Result) {
	tokens, slots := 8, 2
	for range 8 {
		tokens--
		if slots > 0 {
			slots--
		}
	}
	_, a := with(w, specs(w, nil, "ocr.bulkhead.Limit=2", "ocr.bulkhead.MaxWait=0s", "ocr.bulkhead.MaxWaiters=0"))
	var left float64
	replay.Together(
		func() {
			replay.Traffic{Every: 1, Length: 8}.Offer(func(int) { _ = a.realtime(context.Background(), document{}) })
		},
		func() {
			time.Sleep(time.Microsecond)
			left = replay.Find(a.lanes["realtime"], "lanes.realtime").Limiter.Tokens
		},
	)
	r.Row("8 at one instant for 2 slots: tokens left of 8", replay.Is(tokens, 0), replay.Near(left, 6, 0.01))
}
