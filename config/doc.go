// Package config reads the policies of dependencies from files, the environment and
// wherever else settings are kept, and says where each one came from.
//
//	dependencies:
//	  inventory:
//	    like: standard-http
//	    policies:
//	      - ratelimit: {Rate: 6000/s, Burst: 100}
//	      - breaker: {OpenFor: 5s}
//
// A policy stands under its kind, as metrics and errors name it, with the fields of its Go
// configuration under their own names. Durations have a unit (500ms), rates are calls per
// time (100/s, 6/min), shares may be written as 10%, large numbers as 10k or 64Ki, and the
// values below zero that have a name in Go by that name (off, none, unlimited, empty).
//
// [Load] lays the sources over each other, later layers over earlier ones ([Layer]), and
// reports everything that is wrong at once, with file, line, column and the nearest name
// that exists. What it returns are the specs that [policy.New] takes.
//
// It is a module of its own, so that whoever configures policies in Go does not depend on
// what reads YAML.
package config
