// Command pictures draws the lines that a simulation has written as JSON, one SVG file for
// each picture:
//
//	go run ./examples/fleet -lines fleet.json
//	go run ./examples/incidents/lines > incidents.json
//	go run ./tools/pictures -o docs/images fleet.json incidents.json
//
// A picture has panels, one above the other with the same axes, or charts, each with one
// diagram before and one after. All have lines with one value for each second. The same
// lines give the same file.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	dir := flag.String("o", ".", "directory of the files")
	flag.Parse()
	if err := files(flag.Args(), *dir); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// Pictures is the input.
type Pictures struct {
	Pictures []Picture `json:"pictures"`
}

// Picture is one file.
type Picture struct {
	Name   string  `json:"name"` // of the file, without .svg
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
	Charts []Chart `json:"charts"` // in place of Panels
}

// Panel is a diagram.
type Panel struct {
	Title string `json:"title"`
	Unit  string `json:"unit"` // of the values
	Lines []Line `json:"lines"`
}

// Line has a value for each second, from 0.
type Line struct {
	Name string    `json:"name"`
	Y    []float64 `json:"y"`
}

// fileName is a name that cannot lead elsewhere.
var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// files draws the pictures of several files.
func files(names []string, dir string) error {
	if len(names) == 0 {
		return errors.New("want files with lines")
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := run(bytes.NewReader(data), dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// run draws the pictures that are described in in.
func run(in io.Reader, dir string) error {
	var p Pictures
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("no lines: %w", err)
	}
	if len(p.Pictures) == 0 {
		return errors.New("there are no pictures in the input")
	}
	for _, pic := range p.Pictures {
		if !fileName.MatchString(pic.Name) {
			return fmt.Errorf("%q is no name of a picture: want small letters, digits and -", pic.Name)
		}
		svg, err := draw(pic)
		if err != nil {
			return fmt.Errorf("%s: %w", pic.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, pic.Name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}
