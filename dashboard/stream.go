package dashboard

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	writeWithin = 10 * time.Second // a viewer who does not read for so long is hung up on
	reauthorize = 30 * time.Second
	retryStream = 2 * time.Second
)

// streams makes the frames that viewers are sent, each once, however many they are.
type streams struct {
	open atomic.Int32

	mu    sync.Mutex
	frame uint64            // that the rest is of
	made  map[string][]byte // by what is in it
}

// of returns a part of the frame with the given number, which is made once.
func (s *streams) of(frame uint64, what string, build func() []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frame != frame || s.made == nil {
		s.frame, s.made = frame, map[string][]byte{}
	}
	b, ok := s.made[what]
	if !ok {
		b = build()
		s.made[what] = b
	}
	return b
}

// stream sends what changes, until the viewer leaves, may no longer look, or the
// dashboard is closed. A viewer who is slow gets fewer frames, and all that has changed
// with the next one.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, v Viewer, name string) {
	if d.streams.open.Add(1) > maxStreams {
		d.streams.open.Add(-1)
		w.Header().Set("Retry-After", strconv.Itoa(int(retryStream.Seconds())))
		fail(w, http.StatusServiceUnavailable, "64 streams are open: close one, or ask for snapshots")
		return
	}
	defer d.streams.open.Add(-1)
	if r.Method == http.MethodHead {
		return
	}
	rc := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would wait for more
	send := func(b []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(writeWithin)) // where it is not supported, none is
		if _, err := w.Write(b); err != nil {                //nolint:gosec // JSON, under the type of a stream
			return false
		}
		return rc.Flush() == nil
	}
	if !send([]byte("retry: " + strconv.FormatInt(retryStream.Milliseconds(), 10) + "\n\n")) {
		return
	}
	var seen uint64
	asked := time.Now()
	for {
		frame, wake := d.sampler.latest()
		if frame != seen {
			if !send(d.frameFor(frame, seen, v, name)) {
				return
			}
			seen = frame
		}
		select {
		case <-wake:
		case <-r.Context().Done():
			return
		case <-d.stop:
			_ = send([]byte("event: bye\ndata: {}\n\n"))
			return
		}
		if time.Since(asked) >= reauthorize {
			again, ok := d.authorize(r)
			if !ok || again != v {
				_ = send([]byte("event: bye\ndata: {}\n\n"))
				return
			}
			asked = time.Now()
		}
	}
}

// frameFor puts the parts of a frame together for a viewer who has seen an earlier one.
func (d *Dashboard) frameFor(frame, seen uint64, v Viewer, name string) []byte {
	what := "all"
	if seen != 0 && seen+1 == frame {
		what = "moved"
	}
	b := d.streams.of(frame, what, func() []byte { return d.sampler.cardsFrame(what == "all") })
	rights := "/" + strconv.FormatBool(v.Act) + strconv.FormatBool(v.Private) + strconv.FormatBool(v.Name != "") + "/"
	fleet := d.streams.of(frame, "fleet"+rights, func() []byte {
		_, _, inForce := d.hand.audit(v)
		return event("fleet", struct {
			Answers []Answer     `json:"answers"`
			InForce []InForce    `json:"inForce"`
			Config  *ConfigState `json:"config,omitempty"`
		}{d.answers(v, ""), inForce, d.configState()})
	})
	b = slices.Concat(b, fleet)
	if name != "" {
		b = append(b, d.streams.of(frame, "one"+rights+name, func() []byte {
			det, ok := d.detail(name, v)
			if !ok {
				return nil
			}
			return event("dependency", det)
		})...)
	}
	return b
}

func event(name string, v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return slices.Concat([]byte("event: "+name+"\ndata: "), body, []byte("\n\n"))
}

// latest returns the number of the last sample, and what is closed with the next one.
func (s *sampler) latest() (frame uint64, wake <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.frame, s.wake
}

// cardsFrame makes the part of a frame with the cards: all, or those that have moved.
// Every card comes with the last second for its spark line.
func (s *sampler) cardsFrame(all bool) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all = all || s.grown == s.frame // what follows counts on the list being known
	var b bytes.Buffer
	b.WriteString("event: cards\ndata: {\"at\":")
	b.WriteString(strconv.FormatInt(s.now.UnixMilli(), 10))
	b.WriteString(`,"all":` + strconv.FormatBool(all) + `,"cards":[`)
	first := true
	for _, r := range s.order {
		if !all && !r.moved {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.Write(r.line)
	}
	b.WriteString(`],"last":[`)
	row := (s.time.taken - 1) % fineRows
	var num []byte
	for i, r := range s.order { // in the order of names
		if i > 0 {
			b.WriteByte(',')
		}
		var calls, bad float64
		if r.table != nil {
			calls, bad = r.spark(row)
		}
		num = strconv.AppendFloat(append(num[:0], '['), calls, 'g', -1, 64)
		num = strconv.AppendFloat(append(num, ','), bad, 'g', -1, 64)
		b.Write(append(num, ']'))
	}
	b.WriteString("]}\n\n")
	return b.Bytes()
}

// oldest returns when the history begins.
func (s *sampler) oldest() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if spots := s.time.spots(0); len(spots) > 0 {
		return spots[0].at
	}
	return 0
}

func sortCards(cards []Card) {
	slices.SortFunc(cards, func(a, b Card) int { return worse(&a, &b) })
}
