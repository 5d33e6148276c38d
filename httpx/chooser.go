package httpx

import (
	"net/http"

	"github.com/breakwater-go/breakwater/policy"
)

// A Chooser says which pipeline a request goes through, where one transport talks to many
// dependencies: [Hosts], [Routes], or a [ChooserFunc]. It is called concurrently.
type Chooser interface {
	// Choose returns the pipeline of req, and what is called, if it is not nil, when the
	// request has been answered or has failed, retries and all. The pipeline is used
	// until then. Nil leaves the choice to who made the transport. It must not modify
	// req, nor read its body.
	Choose(req *http.Request) (p *policy.Pipeline, done func())
}

// ChooserFunc is a [Chooser] whose pipelines are there to stay.
type ChooserFunc func(req *http.Request) *policy.Pipeline

// Choose implements [Chooser].
func (f ChooserFunc) Choose(req *http.Request) (p *policy.Pipeline, done func()) {
	return f(req), nil
}
