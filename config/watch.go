package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A Watchable is a [Source] that tells when what it would read may have changed. Watch
// calls changed, from one goroutine at a time, until ctx ends, and then returns nil. It
// goes on through outages of what it watches, and returns an error only if it cannot
// begin. What changed between its last Read and Watch it must tell as well: to call changed
// once it has begun is safe, since the [Manager] leaves alone what is as it was.
type Watchable interface {
	Source

	Watch(ctx context.Context, changed func()) error
}

// Watch reloads whenever a watchable source has changed or a signal of the configuration
// arrives, until ctx ends; it then returns nil. Of a change it waits until the sources have
// been quiet and have said the same twice, so that a file that is being written in place is
// not taken for a shorter one; one that is empty is left alone. Sources that cannot be read it
// asks again, until they can be. The results are logged, and the registry is
// told of them. It blocks, and ends early only if a source cannot be watched at all.
func (m *Manager) Watch(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	var signals chan os.Signal // nil never delivers
	if len(m.cfg.Signals) > 0 {
		signals = make(chan os.Signal, 1)
		signal.Notify(signals, m.cfg.Signals...)
		defer signal.Stop(signals)
	}
	failed := make(chan error, len(m.cfg.Sources))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, src := range m.cfg.Sources {
		if w, ok := src.(Watchable); ok {
			wg.Go(func() {
				if err := w.Watch(ctx, poke); err != nil {
					failed <- err
				}
			})
		}
	}
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	asked := false
	var seen *reading
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-changed:
			quiet.Reset(m.cfg.Debounce)
		case <-signals:
			asked = true
			quiet.Reset(0)
		case <-quiet.C:
			if asked {
				asked, seen = false, nil
				_, _ = m.reload(ctx, "reload") // logged
				wg.Go(func() { m.closeGone(ctx) })
				continue
			}
			var again time.Duration
			if seen, again = m.catchUp(ctx, seen); again > 0 {
				quiet.Reset(again)
			}
			wg.Go(func() { m.closeGone(ctx) })
		}
	}
}

// reading is what the sources held at one time.
type reading struct {
	contents []content
	errs     []error
	reported bool // the errors were
}

func (r *reading) equal(other *reading) bool {
	return other != nil && fmt.Sprint(r.errs) == fmt.Sprint(other.errs) && reflect.DeepEqual(r.contents, other.contents)
}

// blank reports whether a file has nothing in it: it is being written.
func (r *reading) blank() bool {
	return slices.ContainsFunc(r.contents, func(c content) bool { return c.file && len(bytes.TrimSpace(c.YAML)) == 0 })
}

// retryEvery is how often sources are asked again that could not be read.
const retryEvery = 5 * time.Second

// catchUp reloads when the sources have said the same twice, and it is not what is in force
// already: a writer may be half way through. It returns what it has seen, and when to come
// again; 0 is when something has changed.
func (m *Manager) catchUp(ctx context.Context, seen *reading) (now *reading, again time.Duration) {
	now = &reading{}
	if m.readAlone(ctx) != nil {
		return nil, 0 // the end of Watch
	}
	defer m.doneReading()
	now.contents, now.errs = read(ctx, m.cfg.Sources)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(now.errs) == 0 && m.fault == nil && reflect.DeepEqual(now.contents, m.versions[len(m.versions)-1].contents):
		return nil, 0
	case !now.equal(seen):
		return now, m.cfg.Debounce
	case len(now.errs) == 0 && now.blank():
		return nil, 0
	}
	if now.reported = seen.reported; !now.reported {
		now.reported = true
		_, _ = m.loadLocked(ctx, "reload", now.contents, now.errs) // logged
	}
	if len(now.errs) > 0 {
		return now, max(m.cfg.Debounce, retryEvery)
	}
	return nil, 0
}

// recheck is how often a file is looked at where nothing was heard of it: events get lost
// on some file systems.
const recheck = 30 * time.Second

// Watch implements [Watchable]. It listens to the directory, not to the file, which
// editors replace and Kubernetes swaps behind a symbolic link; what counts is whether the
// content is another. It calls changed when it has begun to listen, since the file may have
// changed between its reading and that.
func (f fileSource) Watch(ctx context.Context, changed func()) error {
	var last []byte
	for ctx.Err() == nil {
		if err := f.listen(ctx, &last, changed); err != nil {
			slog.Debug("config: watching anew", slog.String("file", f.path), slog.Any("error", err))
		}
		select { // the directory went away, or cannot be watched: look now and then
		case <-ctx.Done():
		case <-time.After(time.Second):
			f.look(&last, changed)
		}
	}
	return nil
}

var errClosed = errors.New("the watcher has ended")

func (f fileSource) listen(ctx context.Context, last *[]byte, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	dir := filepath.Dir(f.path)
	if err := w.Add(dir); err != nil {
		return err
	}
	before, err := os.Stat(dir)
	if err != nil {
		return err
	}
	f.look(last, changed) // what happened before it listened
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return errClosed
			}
			f.look(last, changed)
		case err, ok := <-w.Errors:
			if !ok || err != nil {
				return errors.Join(errClosed, err)
			}
		case <-tick.C:
			f.look(last, changed)
		}
		if now, err := os.Stat(dir); err != nil || !os.SameFile(before, now) {
			return errClosed // it was replaced: listen to the new one
		}
	}
}

// look reports a content that is not the last one. A file that is away or empty has not
// changed yet: it is being replaced.
func (f fileSource) look(last *[]byte, changed func()) {
	data, err := os.ReadFile(f.path)
	if err != nil || len(bytes.TrimSpace(data)) == 0 || bytes.Equal(data, *last) {
		return
	}
	*last = data
	changed()
}
