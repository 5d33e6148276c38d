package config

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/config/internal/near"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// Fallback is what a file says of a policy of the kind fallback: the answer itself, as Value
// or as Response, or the name of one that the program has.
type Fallback struct {
	// Name is the instance name. Empty means "fallback".
	Name string

	// Value is the answer: a text, a number, a truth value, a list or a mapping. Each call
	// gets it in its own type, by the names that the type has in JSON.
	Value any

	// Response is the answer to calls over HTTP, in place of Value.
	Response Response

	// Use is the name of a fallback that the program has handed over, in place of Value.
	Use string

	// Gate bounds the answers that are made at a time, for an expensive one. Its zero
	// value is no bound. It belongs to Use.
	Gate Gate
}

// Response is the answer of a fallback to a call over HTTP.
type Response struct {
	// Status is the code, from 200 to 599. Zero means 200.
	Status int

	// Header holds a value for each name.
	Header map[string]string

	// Body is the text.
	Body string
}

// Gate bounds the answers of a fallback.
type Gate = bulkhead.Semaphore

// Use is what a file says of policies that are code: the name of one that the program has.
type Use struct {
	// Name is the instance name. Empty means the one that the policy has.
	Name string

	// Use is the name of a policy that the program has handed over. It has no default.
	Use string
}

// named are the kinds of policies that a file can refer to by a name only.
var byName = []string{"errormap", "stale", "defer", "classify"}

const keyFallback = "fallback"

// programKinds returns the kinds that refer to what programs have.
func (v *vocabulary) programKinds() []Kind {
	list := []Kind{{
		Name: keyFallback, Settings: Fallback{},
		Make: func(_ string, settings any) (policy.Policy, error) { return settings.(Fallback).policy(v) }, //nolint:forcetypeassert // as above
	}}
	for _, kind := range byName {
		list = append(list, Kind{
			Name: kind, Settings: Use{},
			Make: func(_ string, settings any) (policy.Policy, error) {
				u := settings.(Use) //nolint:forcetypeassert // as above
				return v.used(kind, u.Name, u.Use, Gate{})
			},
		})
	}
	return list
}

// policy returns the fallback that the settings describe.
func (f Fallback) policy(v *vocabulary) (policy.Policy, error) {
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: keyFallback, Field: field, Value: value, Want: want})
	}
	responds := !reflect.ValueOf(f.Response).IsZero()
	given := 0
	for _, set := range []bool{f.Value != nil, responds, f.Use != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		fail("", nil, "want one of Value, Response and Use")
	}
	if f.Response.Status != 0 && (f.Response.Status < 200 || f.Response.Status > 599) {
		fail("Response.Status", f.Response.Status, "want 200 to 599, or 0 (200)")
	}
	if f.Use == "" && f.Gate != (Gate{}) {
		fail("Gate", nil, "want none: what stands in the file costs nothing to answer with")
	}
	raw, err := json.Marshal(f.Value)
	if err != nil {
		fail("Value", nil, "want what JSON can say: "+err.Error())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	switch {
	case f.Use != "":
		return v.used(keyFallback, f.Name, f.Use, f.Gate)
	case responds:
		return response{f.Name, f.Response}, nil
	default:
		return fallback.JSON(f.Name, raw), nil
	}
}

// used returns a policy that the program has handed over.
func (v *vocabulary) used(kind, instance, name string, gate Gate) (policy.Policy, error) {
	fault := &policy.ConfigError{Policy: kind, Field: "Use"}
	if name == "" {
		fault.Want = "want the name of a policy that the program has handed over"
		return nil, fault
	}
	h := v.policies[name]
	if h == nil {
		if v.anyName {
			return unbound{kind, cmp.Or(instance, kind), name}, nil
		}
		if fault.Want = near.Unknown("policy of the program", name, slices.Sorted(maps.Keys(v.policies))); len(v.policies) == 0 {
			fault.Want = fmt.Sprintf("there is no policy %q: the program has handed over none", name)
		}
		return nil, fault
	}
	if h.kind != kind {
		fault.Value, fault.Want = name, "it is a "+h.kind+", and has to stand under that kind"
		return nil, fault
	}
	if gate != (Gate{}) {
		if err := gate.Validate(); err != nil {
			var errs []error
			for _, err := range flatten(err) {
				if ce, ok := errors.AsType[*policy.ConfigError](err); ok {
					err = &policy.ConfigError{Policy: kind, Field: "Gate." + ce.Field, Value: ce.Value, Want: ce.Want}
				}
				errs = append(errs, err)
			}
			return nil, errors.Join(errs...)
		}
	}
	return used{instance, h, gate}, nil
}

// handed is a policy that a program has handed over.
type handed struct {
	policy.Policy

	kind string
}

// used is such a policy where a file refers to it.
type used struct {
	name string
	of   *handed
	gate Gate
}

// BuildPolicy implements [policy.Policy].
func (u used) BuildPolicy() (policy.Part, error) {
	part, err := u.of.BuildPolicy()
	part.Name = cmp.Or(u.name, part.Name)
	if err == nil && u.gate != (Gate{}) {
		part.Guard, err = bulkhead.New(part.Name, u.gate)
	}
	return part, err
}

// Lent says that no pipeline closes it.
func (used) Lent() {}

// Unwrap returns the policy as it was handed over.
func (u used) Unwrap() policy.Policy { return u.of.Policy }

// unbound is a policy that a program would have.
type unbound struct{ kind, instance, name string }

// BuildPolicy implements [policy.Policy]: it cannot be built.
func (u unbound) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: u.kind, Name: u.instance}, &policy.ConfigError{Policy: u.kind, Field: "Use", Value: u.name, Want: "want the policies of the program: they were not handed over"}
}

// handedOver checks what a program hands over, and finds out what it is.
func (p *Program) handedOver() (map[string]*handed, []error) {
	all := map[string]*handed{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.Policies)) {
		fault := &policy.ConfigError{Policy: "config", Field: fmt.Sprintf("Policies[%q]", name)}
		own := p.Policies[name]
		if own == nil {
			fault.Want = "want a policy, not nil"
			errs = append(errs, fault)
			continue
		}
		if _, several := own.(interface{ Policies() []policy.Policy }); several {
			fault.Want = "want a single policy: hand over each of a chain, and list them in the file"
			errs = append(errs, fault)
			continue
		}
		part, err := own.BuildPolicy()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if part.Kind != keyFallback && !slices.Contains(byName, part.Kind) {
			fault.Value, fault.Want = part.Kind, "want one of "+strings.Join(append([]string{keyFallback}, byName...), ", ")
			errs = append(errs, fault)
			continue
		}
		all[name] = &handed{own, part.Kind}
	}
	return all, errs
}

// response is a fallback that answers over HTTP.
type response struct {
	Name     string
	Response Response
}

var (
	_ policy.Fallback[any] = response{}
	_ policy.Decodable     = response{}
)

// BuildPolicy implements [policy.Policy].
func (r response) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: keyFallback, Name: r.Name, Fallback: r}, nil
}

// Handles implements [policy.Fallback].
func (response) Handles(f policy.FailedCall) bool { return fallback.Handles(f) }

// Answer implements [policy.Fallback].
func (r response) Answer(context.Context, policy.FailedCall) (policy.Answer[any], error) {
	return policy.Answer[any]{Value: r}, nil
}

// DecodeAnswer implements [policy.Decodable] with a response that is the caller's.
func (r response) DecodeAnswer(to any) error {
	own := r.make() //nolint:bodyclose // whoever gets it closes it
	switch to := to.(type) {
	case **http.Response:
		*to = own
	case *any:
		*to = own
	default:
		return fmt.Errorf("config: the fallback has a Response, and the call returns %T", to)
	}
	return nil
}

func (r response) make() *http.Response {
	code := cmp.Or(r.Response.Status, http.StatusOK)
	h := make(http.Header, len(r.Response.Header))
	for name, value := range r.Response.Header {
		h.Set(name, value)
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(r.Response.Body)), ContentLength: int64(len(r.Response.Body)),
	}
}
