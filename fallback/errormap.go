package fallback

import "github.com/breakwater-go/breakwater/policy"

// ErrorMap replaces the error that the caller gets by another one: that of the
// application for that of a client library, or one that a server knows how to show. It
// comes after all fallbacks, and sees the error that would be returned.
//
// The new error is what the text shows; [errors.Is] and [errors.As] find it first and
// then the original, so a refusal can still be told from a failure. Counters, breaker
// and retries have seen the original.
type ErrorMap struct {
	// Name is the instance name, unique within a pipeline. Empty means "errormap".
	Name string

	// Func returns the error to return in place of f.Err, or nil to leave that. It is not
	// asked when the caller has given up, nor when the caller gets a value. It runs on
	// the goroutine of the call and may run concurrently. It must not be nil.
	Func func(f policy.FailedCall) error
}

// Validate reports every invalid field as a [*policy.ConfigError].
func (m ErrorMap) Validate() error {
	if m.Func == nil {
		return &policy.ConfigError{Policy: mapKind, Field: "Func", Want: "want a function, not nil"}
	}
	return nil
}

const mapKind = "errormap"

// BuildPolicy returns the part of the policy.
func (m ErrorMap) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: mapKind, Name: m.Name, MapError: m.Func}, m.Validate()
}
