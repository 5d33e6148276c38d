package otelx

import (
	"slices"

	"github.com/breakwater-go/breakwater/policy"
)

// past is what a view remembers of the pipelines that it shows as one. A counter that
// falls looks like the restart of a process, and its rate has a spike; so what one of
// them has counted stays when it goes away, or cannot be read for once.
type past struct {
	last map[*policy.Pipeline][]point // what only rises, of those there were at the last reading
	gone []point                      // the sums of those that went away before
}

// advance replaces what was there by what is, and returns what those that are gone have
// counted.
func (p *past) advance(now map[*policy.Pipeline][]point) []point {
	sums := reading{points: p.gone}
	for pipe, points := range p.last {
		if _, ok := now[pipe]; !ok {
			sums.points = append(sums.points, points...)
		}
	}
	if len(sums.points) > len(p.gone) {
		sums.merge()
	}
	p.last, p.gone = now, sums.points
	return p.gone
}

// rising returns those of the points that only rise.
func rising(points []point) []point {
	return slices.DeleteFunc(points, func(p point) bool {
		return p.of.kind != counter && p.of.kind != distribution
	})
}
