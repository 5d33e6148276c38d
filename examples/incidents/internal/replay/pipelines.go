package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/redisconfig"
	"github.com/breakwater-go/breakwater/policy"
)

// World is the place where a replay runs. What goes wrong in its making ends the replay.
type World struct {
	closers []func()
	live    *Live // nil on virtual time
	names   int   // of pipelines that were made, on real time
}

// Setup says how the pipelines of a file are made.
type Setup struct {
	// Settings are changes to the file, such as captcha.ratelimit.Rate=1/s.
	Settings []string

	// Store is where limits of the kind redis are kept. Nil is one of their own.
	Store *Store

	// Logger is that of these limits. Nil is none.
	Logger *slog.Logger
}

// Pipelines makes the pipelines of a file.
func (w *World) Pipelines(file []byte, s Setup) map[string]*policy.Pipeline {
	made := map[string]*policy.Pipeline{}
	for _, d := range w.Load(file, s).Dependencies {
		made[d.Name] = w.Pipeline(d.Name, d.Specs()...)
	}
	return made
}

// Load reads a file.
func (w *World) Load(file []byte, s Setup) *config.Settings {
	if s.Store == nil {
		s.Store = NewStore(time.Millisecond)
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	kind := s.Store.kind(s.Logger)
	if w.live != nil && w.live.Redis != nil {
		kind = redisconfig.Kind(map[string]redis.UniversalClient{"limits": w.live.Redis})
	}
	program := &config.Program{Kinds: []config.Kind{kind}}
	settings, err := config.Load(context.Background(), program, config.Bytes("breakwater.yaml", config.LayerFile, file), config.Pinned(s.Settings...))
	w.Must(err)
	return settings
}

// Pipeline makes a pipeline and closes it at the end.
func (w *World) Pipeline(name string, policies ...policy.Policy) *policy.Pipeline {
	if w.live != nil {
		return w.livePipeline(name, policies)
	}
	p, err := policy.New(name, policies...)
	w.Must(err)
	w.AtEnd(func() { w.Must(p.Close(context.Background())) })
	return p
}

// AtEnd has fn called when the replay has ended. The last one is called first.
func (w *World) AtEnd(fn func()) { w.closers = append(w.closers, fn) }

// failed is what Must ends a replay with.
type failed struct{ err error }

// Must ends the replay if there is an error.
func (w *World) Must(err error) {
	if err != nil {
		panic(failed{err}) // run makes an error of it again
	}
}

// run calls fn and closes what it has made, also when fn has failed.
func (w *World) run(fn func(w *World)) error {
	err := attempt(func() { fn(w) })
	for _, end := range slices.Backward(w.closers) {
		err = errors.Join(err, attempt(end))
	}
	return err
}

// attempt calls fn, and returns what it failed with by Must.
func attempt(fn func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failed:
			err = fmt.Errorf("replay: %w", v.err)
		default:
			panic(v)
		}
	}()
	fn()
	return nil
}
