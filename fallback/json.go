package fallback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/breakwater-go/breakwater/policy"
)

// JSON returns a fallback that answers every failure that [Handles] reports with a value in
// JSON, which each call gets in its own type: what a file can say that does not know the
// types of a program. Each caller has a value of its own. Fields that the type does not have
// are an error of the answer, and so is a value that does not fit.
//
// It costs the decoding at each answer, some microseconds for a small object; [Value] costs
// nothing. Name is that of the instance; empty means "fallback".
func JSON(name string, data []byte) policy.Fallback[any] {
	return constant{Name: name, JSON: string(data)}
}

// constant is a value in JSON.
type constant struct {
	Name string
	JSON string
}

var (
	_ policy.Fallback[any] = constant{}
	_ policy.Decodable     = constant{}
)

// Validate reports a value that is no JSON.
func (c constant) Validate() error {
	if !json.Valid([]byte(c.JSON)) {
		return &policy.ConfigError{Policy: kind, Field: "Value", Want: "want a value in JSON"}
	}
	return nil
}

// BuildPolicy returns a part for calls of any type.
func (c constant) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: kind, Name: c.Name, Fallback: c}, c.Validate()
}

// Handles reports whether the fallback answers for f.
func (constant) Handles(f policy.FailedCall) bool { return Handles(f) }

// Answer returns the value, which takes the type of the call.
func (c constant) Answer(context.Context, policy.FailedCall) (policy.Answer[any], error) {
	return policy.Answer[any]{Value: c}, nil
}

// DecodeAnswer implements [policy.Decodable].
func (c constant) DecodeAnswer(to any) error {
	dec := json.NewDecoder(bytes.NewReader([]byte(c.JSON)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return fmt.Errorf("fallback: the value does not fit %T: %w", to, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("fallback: there is more than one value")
	}
	return nil
}
