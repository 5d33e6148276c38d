package config

import (
	"strings"

	"github.com/breakwater-go/breakwater/config/internal/near"
)

// Error is one fault of a configuration. Functions of this package report all faults at
// once, joined with [errors.Join].
type Error struct {
	Origin  Origin
	Path    string // of the setting, such as inventory.breaker.OpenFor; empty when it has none
	Problem string // what is wrong and what would be right
	Err     error  // the fault that a policy has found; nil for others
}

// Error reads like breakwater.yaml:12:7: inventory.breaker.OpenFor: "3": want a
// duration with a unit, such as 500ms.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Origin.String())
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	b.WriteString(": " + e.Problem)
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// unknown describes a name that does not exist beside those that do.
func unknown(what, name string, known []string) string { return near.Unknown(what, name, known) }
