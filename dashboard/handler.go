package dashboard

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed all:dist
var dist embed.FS

// contentPolicy lets the page use what it was served with and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// actHeader must be set on every request that changes something. A page of another
// origin cannot set it without being asked first, and is refused then.
const actHeader = "X-Breakwater-Act"

const maxBody = 16 << 10

// The parts of the API, by the last element of the path.
const (
	pathSnapshot   = "snapshot"
	pathDependency = "dependency"
	pathHistory    = "history"
	pathEvents     = "events"
	pathExport     = "export"
	pathStream     = "stream"
	pathConfig     = "config"
	pathPreview    = "preview"
	pathAct        = "act"
	pathUndo       = "undo"
)

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if d.invalid != nil {
		fail(w, http.StatusInternalServerError, "the dashboard's Config is invalid: "+d.invalid.Error())
		return
	}
	if d.closed() {
		fail(w, http.StatusServiceUnavailable, "the dashboard is closed")
		return
	}
	v, ok := d.authorize(r)
	dir, file := path.Split(r.URL.Path)
	api := path.Base(dir) == "api"
	changes := api && (file == pathAct || file == pathUndo)
	if !ok {
		if changes {
			d.refusedAction(r, v, file, "not authorized")
		}
		fail(w, http.StatusForbidden, "not authorized: without an Authorize hook the dashboard answers only this machine, under a loopback address")
		return
	}
	switch {
	case api && (changes || file == pathPreview):
		d.serveAction(w, r, v, file)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "want GET")
	case api:
		d.serveAPI(w, r, v, file)
	default:
		d.servePage(w, r, file)
	}
}

// authorize asks the hook. One that panics lets nobody in.
func (d *Dashboard) authorize(r *http.Request) (v Viewer, ok bool) {
	defer func() {
		if recover() != nil {
			v, ok = Viewer{}, false
		}
	}()
	return d.cfg.Authorize(r)
}

// servePage serves the page, at every path that ends in a slash, and its parts.
func (d *Dashboard) servePage(w http.ResponseWriter, r *http.Request, file string) {
	if file == "" {
		file = "index.html"
	}
	body, err := fs.ReadFile(dist, "dist/"+file)
	if err != nil || strings.HasPrefix(file, ".") {
		fail(w, http.StatusNotFound, "there is no such page")
		return
	}
	kind := mime.TypeByExtension(path.Ext(file))
	switch path.Ext(file) { // the system's table may say otherwise
	case ".html":
		kind = "text/html; charset=utf-8"
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) //nolint:gosec // one of the embedded files
	}
}

// About says what the page must know beforehand.
type About struct {
	Title    string `json:"title"`
	Viewer   string `json:"viewer"`
	Act      bool   `json:"act"`     // the viewer may act
	Private  bool   `json:"private"` // and see error texts and keys
	MaxFor   int    `json:"maxSeconds"`
	TraceURL string `json:"traceUrl,omitempty"`
	Heat     int    `json:"heatBands"`
}

// Overview is the answer of the API's snapshot.
type Overview struct {
	At      int64                   `json:"at"` // milliseconds since 1970
	About   About                   `json:"about"`
	Cards   []Card                  `json:"cards"` // the worst first
	Answers []Answer                `json:"answers,omitempty"`
	Sparks  map[string][2][]float64 `json:"sparks,omitempty"` // calls and bad ones per second, the last two minutes
	Oldest  int64                   `json:"oldest"`           // where the history begins
	InForce []InForce               `json:"inForce"`
	Config  *ConfigState            `json:"config,omitempty"` // nothing when none was ever loaded
}

func (d *Dashboard) about(v Viewer) About {
	return About{
		Title: clean(d.cfg.Title, maxTitle), Viewer: clean(v.Name, maxText),
		Act: v.Act && d.cfg.Actions && v.Name != "", Private: v.Private,
		MaxFor: int(d.cfg.MaxFor.Seconds()), TraceURL: d.cfg.TraceURL, Heat: heatBands,
	}
}

// overview describes all dependencies, as they are or, with a time, as they were.
func (d *Dashboard) overview(v Viewer, at int64) Overview {
	o := Overview{About: d.about(v), Oldest: d.sampler.oldest()}
	if at > 0 {
		o.Cards, o.At = d.sampler.cardsAt(at)
	} else {
		var now time.Time
		o.Cards, now = d.sampler.cards()
		o.At, o.Answers, o.Sparks = now.UnixMilli(), d.answers(v, ""), d.sampler.sparks()
	}
	sortCards(o.Cards)
	_, _, o.InForce = d.hand.audit(v)
	o.Config = d.configState()
	return o
}

// Events is the answer of the API's events.
type Events struct {
	Changes  []Change     `json:"changes"` // newest first, as all here
	Refusals []Incident   `json:"refusals,omitempty"`
	Failures []Incident   `json:"failures,omitempty"`
	Audit    []AuditEntry `json:"audit"`
	Refused  []AuditEntry `json:"refusedActions"`
	InForce  []InForce    `json:"inForce"`
}

func (d *Dashboard) events(name string, v Viewer) Events {
	e := Events{Changes: d.journal.timeline(name, keptChanges, v)}
	if name != "" {
		e.Refusals = d.journal.incidents(d.journal.refusals, name, v)
		e.Failures = d.journal.incidents(d.journal.failures, name, v)
	}
	e.Audit, e.Refused, e.InForce = d.hand.audit(v)
	return e
}

// Export is the answer of the API's export: all that is kept.
type Export struct {
	At        int64         `json:"at"`
	Title     string        `json:"title"`
	Overview  Overview      `json:"overview"`
	Details   []Detail      `json:"details"`
	Histories []History     `json:"histories"`
	Events    Events        `json:"events"`
	Config    ConfigHistory `json:"config"`
}

// serveAPI answers a read.
func (d *Dashboard) serveAPI(w http.ResponseWriter, r *http.Request, v Viewer, file string) {
	q := r.URL.Query()
	name := d.resolve(q.Get("name"))
	switch file {
	case pathSnapshot:
		at, err := strconv.ParseInt(q.Get("at"), 10, 64)
		if q.Get("at") != "" && (err != nil || at <= 0) {
			fail(w, http.StatusBadRequest, "at: want milliseconds since 1970")
			return
		}
		reply(w, d.overview(v, at))
	case pathDependency:
		det, ok := d.detail(name, v)
		if !ok {
			fail(w, http.StatusNotFound, "there is no dependency of this name")
			return
		}
		reply(w, det)
	case pathHistory:
		h, ok := d.sampler.history(name)
		if !ok {
			fail(w, http.StatusNotFound, "there is no history of a dependency of this name")
			return
		}
		reply(w, h)
	case pathEvents:
		reply(w, d.events(name, v))
	case pathExport:
		w.Header().Set("Content-Disposition", `attachment; filename="breakwater.json"`)
		d.export(w, v, name)
	case pathConfig:
		reply(w, d.configHistory())
	case pathStream:
		d.stream(w, r, v, name)
	default:
		fail(w, http.StatusNotFound, "there is no such part of the API")
	}
}

// export writes all that is kept, of one dependency or, with an empty name, of all.
func (d *Dashboard) export(w http.ResponseWriter, v Viewer, name string) {
	e := Export{Title: d.cfg.Title, Overview: d.overview(v, 0), Events: d.events(name, v), Config: d.configHistory()}
	e.At = e.Overview.At
	for p := range d.registry.All() {
		if name != "" && p.Name() != name {
			continue
		}
		if det, ok := d.detail(p.Name(), v); ok {
			e.Details = append(e.Details, det)
		}
		if h, ok := d.sampler.history(p.Name()); ok {
			e.Histories = append(e.Histories, h)
		}
	}
	reply(w, e)
}

// resolve finds the dependency that is shown under a name. Those that hold characters
// which are not shown are not shown under their own.
func (d *Dashboard) resolve(shown string) string {
	if _, ok := d.registry.Get(shown); ok || shown == "" {
		return shown
	}
	for p := range d.registry.All() {
		if clean(p.Name(), maxText) == shown {
			return p.Name()
		}
	}
	return shown
}

// serveAction answers what changes something, or would.
func (d *Dashboard) serveAction(w http.ResponseWriter, r *http.Request, v Viewer, file string) {
	no := func(status int, text string) {
		if file != pathPreview {
			d.refusedAction(r, v, file, text)
		}
		fail(w, status, text)
	}
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		no(http.StatusMethodNotAllowed, "want POST")
		return
	case !d.cfg.Actions:
		no(http.StatusForbidden, "actions are turned off")
		return
	case !v.Act:
		no(http.StatusForbidden, "you have not the authority to act")
		return
	}
	if err := d.origins.Check(r); err != nil {
		no(http.StatusForbidden, "the request comes from a page of another origin")
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		no(http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		return
	}
	if r.Header.Get(actHeader) == "" {
		no(http.StatusForbidden, "want the header "+actHeader+": 1")
		return
	}
	if file == pathUndo {
		d.serveUndo(w, r, v, no)
		return
	}
	var a Action
	if err := decode(w, r, &a); err != nil {
		no(http.StatusBadRequest, err.Error())
		return
	}
	a.Dependency = d.resolve(a.Dependency)
	if file == pathPreview {
		p, err := d.hand.preview(r.Context(), &a)
		if err != nil {
			no(statusOf(err))
			return
		}
		reply(w, p)
		return
	}
	refused := func(err error) {
		status, text := statusOf(err)
		e := d.refusedOf(r, v, a.Action, text)
		e.Dependency, e.Policy, e.Key, e.Why = clean(a.Dependency, maxText), clean(a.Policy, maxText), clean(a.Key, maxText), clean(a.Why, maxReason)
		d.hand.refusedEntry(e)
		fail(w, status, text)
	}
	why, err := checked(v, a.Why)
	if err != nil {
		refused(err)
		return
	}
	a.Why = why
	e, err := d.hand.act(r.Context(), &a, clean(v.Name, maxText), r.RemoteAddr, time.Now())
	if err != nil {
		refused(err)
		return
	}
	reply(w, e)
}

func (d *Dashboard) serveUndo(w http.ResponseWriter, r *http.Request, v Viewer, no func(int, string)) {
	var u struct {
		ID  uint64 `json:"id"`
		Why string `json:"why"`
	}
	if err := decode(w, r, &u); err != nil {
		no(http.StatusBadRequest, err.Error())
		return
	}
	why, err := checked(v, u.Why)
	if err != nil {
		no(statusOf(err))
		return
	}
	e, err := d.hand.undo(u.ID, clean(v.Name, maxText), why, r.RemoteAddr, time.Now())
	if err != nil {
		no(statusOf(err))
		return
	}
	reply(w, e)
}

// refusedAction enters an action that was refused before it was read into the books.
func (d *Dashboard) refusedAction(r *http.Request, v Viewer, action, why string) {
	d.hand.refusedEntry(d.refusedOf(r, v, action, why))
}

func (d *Dashboard) refusedOf(r *http.Request, v Viewer, action, why string) AuditEntry {
	return AuditEntry{
		Time: time.Now(), Who: clean(v.Name, maxText), Remote: r.RemoteAddr, Action: clean(action, maxText),
		Words: "refused: " + clean(r.Method, 16) + " from " + clean(r.Header.Get("Origin"), maxText), Refused: clean(why, 2*maxText),
	}
}

// decode reads the body of a request, which must be one JSON object without fields that
// are not known.
func decode(w http.ResponseWriter, r *http.Request, to any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return fmt.Errorf("the body is not what is wanted: %s", clean(err.Error(), maxText))
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("the body holds more than one value")
	}
	return nil
}

func reply(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, "a figure cannot be written as JSON")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Disposition")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Error string `json:"error"`
	}{clean(text, 4*maxText)})
}
