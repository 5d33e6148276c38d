package replay

import (
	"context"
	"fmt"
	"slices"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

// World is the place where a replay runs. What goes wrong in its making ends the replay.
type World struct {
	closers []func()
}

// Pipelines makes the pipelines of a file. Settings are changes to it, such as
// captcha.ratelimit.Rate=1/s. Code adds policies that are no data, by dependency.
func (w *World) Pipelines(file []byte, code map[string][]policy.Policy, settings ...string) map[string]*policy.Pipeline {
	ctx := context.Background()
	s, err := config.Load(ctx, config.Bytes("breakwater.yaml", config.LayerFile, file), config.Pinned(settings...))
	w.Must(err)
	made := map[string]*policy.Pipeline{}
	for _, d := range s.Dependencies {
		made[d.Name] = w.Pipeline(d.Name, append(d.Specs(), code[d.Name]...)...)
	}
	return made
}

// Pipeline makes a pipeline and closes it at the end.
func (w *World) Pipeline(name string, policies ...policy.Policy) *policy.Pipeline {
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

// run calls fn and closes what it has made.
func (w *World) run(fn func(w *World)) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failed:
			err = fmt.Errorf("replay: %w", v.err)
		default:
			panic(v)
		}
	}()
	fn(w)
	for _, end := range slices.Backward(w.closers) {
		end()
	}
	return nil
}
