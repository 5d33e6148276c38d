package load

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds a file of stages.
const maxFile = 1 << 20

// ReadStages reads the stages of a load from YAML. name stands in the errors, which say
// line and column:
//
//	stages:
//	  - burst: 50
//	  - pause: 5s
//	  - rate: 20/s
//	    for: 10s
//	  - ramp: 50..1000
//	    for: 1m
func ReadStages(name string, data []byte) (*Schedule, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %d bytes: want at most %d", name, len(data), maxFile)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	if len(file.Docs) > 1 && file.Docs[1].Body != nil {
		return nil, fail(name, file.Docs[1].Body, "a second document: want one")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s: the file is empty: want stages", name)
	}
	root, err := fields(name, file.Docs[0].Body, "stages")
	if err != nil {
		return nil, err
	}
	list, ok := root["stages"].(*ast.SequenceNode)
	if !ok {
		return nil, fail(name, file.Docs[0].Body, "want stages, and a list below it")
	}
	var (
		stages []Stage
		errs   []error
	)
	for _, item := range list.Values {
		stage, err := readStage(name, item)
		errs = append(errs, err)
		stages = append(stages, stage)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s, err := NewSchedule(stages...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// readStage reads one entry of the list.
func readStage(name string, n ast.Node) (s Stage, err error) {
	f, err := fields(name, n, "burst", "pause", "rate", "ramp", "for")
	if err != nil {
		return s, err
	}
	kinds := 0
	var kind string
	for _, k := range []string{"burst", "pause", "rate", "ramp"} {
		if f[k] != nil {
			kinds, kind = kinds+1, k
		}
	}
	if kinds != 1 {
		return s, fail(name, n, "want one of burst, pause, rate and ramp")
	}
	text, err := scalar(name, f[kind])
	if err != nil {
		return s, err
	}
	length := f["for"]
	switch kind {
	case "burst":
		if s.Burst, err = strconv.Atoi(text); err != nil || s.Burst < 1 {
			return s, fail(name, f[kind], "burst: %q: want a number of requests from 1", text)
		}
	case "pause":
		if length != nil {
			return s, fail(name, length, "for: a pause says itself how long it lasts: pause: 5s")
		}
		length = f[kind]
	case "rate":
		s.From, err = ParseRate(text)
		s.To = s.From
	case "ramp":
		s.From, s.To, err = ParseRamp(text)
	}
	if err != nil {
		return s, fail(name, f[kind], "%s: %v", kind, err)
	}
	if kind == "burst" {
		if length != nil {
			return s, fail(name, length, "for: a burst is one instant: put a pause after it")
		}
	} else if s.For, err = duration(name, n, length, kind); err != nil {
		return s, err
	}
	if err := s.validate(); err != nil {
		return s, fail(name, f[kind], "%v", err)
	}
	return s, nil
}

func duration(name string, stage, n ast.Node, kind string) (time.Duration, error) {
	if n == nil {
		return 0, fail(name, stage, "%s: want for, such as for: 10s", kind)
	}
	text, err := scalar(name, n)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fail(name, n, "%q: want a duration above 0, such as 10s", text)
	}
	return d, nil
}

// fields returns the values of a mapping, in which there are no keys but the known ones.
func fields(name string, n ast.Node, known ...string) (map[string]ast.Node, error) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, fail(name, n, "want a mapping with one of %v", known)
	}
	m := map[string]ast.Node{}
next:
	for _, v := range values {
		key := v.Key.GetToken().Value
		for _, k := range known {
			if k == key {
				m[k] = v.Value
				continue next
			}
		}
		return nil, fail(name, v.Key, "%q: want one of %v", key, known)
	}
	return m, nil
}

// scalar returns the text of a single value.
func scalar(name string, n ast.Node) (string, error) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		return n.GetToken().Value, nil
	}
	return "", fail(name, n, "want a single value")
}

// fail returns an error with the place of n.
func fail(name string, n ast.Node, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	// The token of a mapping is the colon behind its first key.
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 {
			n = m.Values[0].Key
		}
	case *ast.MappingValueNode:
		n = m.Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return fmt.Errorf("%s:%d:%d: %s", name, t.Position.Line, t.Position.Column, text)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// syntaxError gives an error of the parser its place.
func syntaxError(name string, err error) error {
	if syntax, ok := errors.AsType[yaml.Error](err); ok {
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			return fmt.Errorf("%s:%d:%d: %s", name, t.Position.Line, t.Position.Column, syntax.GetMessage())
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}
