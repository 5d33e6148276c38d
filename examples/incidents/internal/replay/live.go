package replay

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// Live is what a replay on real time has in place of stand-ins.
type Live struct {
	// Registry holds the pipelines while they are there, for a dashboard.
	Registry *policy.Registry

	// Redis is where limits of the kind redis are kept. It is emptied before each scene. Nil
	// leaves them to a [Store].
	Redis redis.UniversalClient

	// Database returns so many connections of a real database, which are closed by whoever
	// made it. Nil has scenes that need one left out.
	Database func(connections int) (*sql.DB, error)

	// Defer returns a durable queue whose tasks are done by h, in up to three tries, and how
	// many tasks are dead. Nil has scenes that need one left out.
	Defer func(h fallback.Handler) (queue fallback.Queue, dead func() int, err error)
}

// RunLive plays scenes one after the other, on real time, until ctx ends.
func RunLive(ctx context.Context, live *Live, scenes ...func(w *World)) error {
	for _, scene := range scenes {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if live.Redis != nil {
			if err := live.Redis.FlushDB(ctx).Err(); err != nil {
				return err
			}
		}
		if err := (&World{live: live}).run(scene); err != nil {
			return err
		}
	}
	return nil
}

// Live reports whether the scene is played on real time.
func (w *World) Live() bool { return w.live != nil }

// Database returns so many connections of the database of a live run.
func (w *World) Database(connections int) *sql.DB {
	db, err := w.live.Database(connections)
	w.Must(err)
	return db
}

// Defer returns the durable queue of a live run.
func (w *World) Defer(h fallback.Handler) (queue fallback.Queue, dead func() int) {
	queue, dead, err := w.live.Defer(h)
	w.Must(err)
	return queue, dead
}

// Registry is where pipelines of a code of its own are to be made, so that a dashboard shows
// them. They are closed at the end.
func (w *World) Registry() *policy.Registry {
	if w.live != nil {
		return w.live.Registry
	}
	r := new(policy.Registry)
	w.AtEnd(func() { w.Must(r.Close(context.Background())) })
	return r
}

// livePipeline makes a pipeline that the dashboard shows. A second one of a name has a number.
func (w *World) livePipeline(name string, policies []policy.Policy) *policy.Pipeline {
	r := w.live.Registry
	if _, there := r.Get(name); there {
		w.names++
		name += " " + strconv.Itoa(w.names+1)
	}
	p, err := r.New(name, policies...)
	w.Must(err)
	w.AtEnd(func() { w.Must(r.Remove(context.Background(), name)) })
	return p
}

// OverHTTP returns, on real time, a handler that sends each request over loopback to a server
// that has h; on virtual time, h itself.
func (w *World) OverHTTP(h http.Handler) http.Handler {
	if w.live == nil {
		return h
	}
	url, client := w.serve(h)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, url+r.URL.Path, http.NoBody)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		out.Header = r.Header.Clone()
		resp, err := client.Do(out)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		maps.Copy(rw.Header(), resp.Header)
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	})
}

// Remote returns, on real time, a function that has fn called by a server on loopback; on
// virtual time, fn itself. Its errors arrive as they are.
func (w *World) Remote(fn func(context.Context) error) func(context.Context) error {
	if w.live == nil {
		return fn
	}
	var known sync.Map // errors by their text
	url, client := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := fn(r.Context()); err != nil {
			known.Store(err.Error(), err)
			rw.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(rw, err.Error())
		}
	}))
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == http.StatusOK {
			return err
		}
		if err, ok := known.Load(string(text)); ok {
			return err.(error)
		}
		return errors.New(string(text))
	}
}

// serve starts a server on loopback, and stops it at the end.
func (w *World) serve(h http.Handler) (url string, client *http.Client) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	w.Must(err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends with ErrServerClosed
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	w.AtEnd(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return "http://" + l.Addr().String(), &http.Client{Transport: transport}
}
