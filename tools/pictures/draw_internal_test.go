package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sample() Picture {
	return Picture{Name: "fleet-x", Title: "T & T", Panels: []Panel{
		{Title: "before", Unit: "calls per second", Lines: []Line{{"load", []float64{0, 1500, 20}}, {"answered", []float64{0, 3, 20}}}},
		{Title: "after", Unit: "calls per second", Lines: []Line{{"load", []float64{0, 1}}, {"answered", nil}}},
	}}
}

func TestDrawRepeats(t *testing.T) {
	t.Parallel()
	one, err := draw(sample())
	if err != nil {
		t.Fatal(err)
	}
	two, err := draw(sample())
	if err != nil || string(one) != string(two) {
		t.Fatalf("%v, or two files of the same lines", err)
	}
	dec := xml.NewDecoder(strings.NewReader(string(one)))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"T &amp; T", ">before<", ">after<", ">load<", ">1500<", "Arial"} {
		if !strings.Contains(string(one), want) {
			t.Errorf("there is no %q", want)
		}
	}
}

// The one before stands above the one after, with the same axes, and each has its names.
func TestDrawCharts(t *testing.T) {
	t.Parallel()
	p := Picture{Name: "incident-x", Title: "T", Charts: []Chart{
		{Title: "answered", Unit: "per second", Before: []Line{{"requests", []float64{0, 1500, 20}}}, After: []Line{{"requests", []float64{0, 3}}}},
		{Title: "refused", Unit: "per second", Before: []Line{{"empty 200", []float64{0, 3}}}, After: []Line{{"429", []float64{1, 2}}}},
		{Title: "state", Unit: "threads", Before: []Line{{"threads", nil}}, After: []Line{{"threads", []float64{0}}}},
	}}
	one, err := draw(p)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := draw(p); err != nil || string(one) != string(two) {
		t.Fatalf("%v, or two files of the same lines", err)
	}
	for want, n := range map[string]int{">answered, before<": 1, ">answered, after<": 1, ">429<": 1, ">empty 200<": 1, ">state, after<": 1, ">1500<": 2, ">seconds<": 3} {
		if got := strings.Count(string(one), want); got != n {
			t.Errorf("%q is there %d times, want %d", want, got, n)
		}
	}
	p.Charts[1].After[0].Y[0] = math.Inf(1)
	if _, err := draw(p); err == nil || !strings.Contains(err.Error(), "refused: 429: a value is +Inf") {
		t.Error(err)
	}
}

func TestFilesSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                     "no lines",
		"{}":                                   "no pictures",
		`{"pictures":[{"name":"../x"}]}`:       "no name of a picture",
		`{"pictures":[{"name":"x"}]}`:          "no panels",
		`{"pictures":[{"name":"x","zap":[]}]}`: "unknown field",
	} {
		file := filepath.Join(dir, "lines.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := files([]string{file}, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %q", text, err, want)
		}
	}
	if err := files(nil, dir); err == nil {
		t.Error("want an error without files")
	}
	p := sample()
	p.Panels[0].Lines[0].Y[1] = math.NaN()
	if _, err := draw(p); err == nil || !strings.Contains(err.Error(), "before: load: a value is NaN") {
		t.Error(err)
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for most, want := range map[float64]string{1600: "0 500 1000 1500", 500: "0 100 200 300 400 500", 1: "0 0.2 0.4 0.6 0.8 1", 0.03: "0 0.01 0.02 0.03", 7: "0 2 4 6"} {
		var got []string
		for _, tick := range (ticks{nice(most), 6}).Ticks(0, most*1.05) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %v, want %s", most, got, want)
		}
	}
}
