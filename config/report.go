package config

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// WriteText writes findings for people: each with its fix and its page, and a line that
// adds them up. Those that are waived are written when all is true.
func WriteText(w io.Writer, findings []*Finding, all bool) error {
	var counts [numSeverities]int
	waived := 0
	var b strings.Builder
	for _, f := range findings {
		if f.Waived {
			waived++
			if all {
				fmt.Fprintln(&b, f)
			}
			continue
		}
		counts[f.Rule.Severity]++
		fmt.Fprintf(&b, "%s\n    %s\n    %s\n", f, f.Rule.Fix, f.Rule.Page())
	}
	fmt.Fprintf(&b, "%s, %s, %s, %d waived\n", count(counts[Fault], "error"), count(counts[Warning], "warning"), count(counts[Note], "note"), waived)
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// jsonFinding is a finding in JSON. Its fields are API.
type jsonFinding struct {
	Rule     string `json:"rule"`
	Name     string `json:"name"`
	Severity string `json:"severity"`
	Source   string `json:"source"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path"`
	Message  string `json:"message"`
	Fix      string `json:"fix"`
	Page     string `json:"page"`
	Incident string `json:"incident,omitempty"`
	Waived   bool   `json:"waived"`
	Reason   string `json:"reason,omitempty"`
}

// WriteJSON writes findings as a list of objects, waived ones included.
func WriteJSON(w io.Writer, findings []*Finding) error {
	list := make([]jsonFinding, 0, len(findings))
	for _, f := range findings {
		list = append(list, jsonFinding{
			Rule: f.Rule.ID, Name: f.Rule.Name, Severity: f.Rule.Severity.String(),
			Source: f.Origin.Source, Line: f.Origin.Line, Column: f.Origin.Column, Path: f.Path,
			Message: f.Message, Fix: f.Rule.Fix, Page: f.Rule.Page(), Incident: f.Rule.Incident,
			Waived: f.Waived, Reason: f.Reason,
		})
	}
	return writeIndented(w, list)
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// The parts of SARIF 2.1.0 (OASIS) that findings need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		Name             string    `json:"name"`
		ShortDescription sarifText `json:"shortDescription"`
		Help             sarifText `json:"help"`
		HelpURI          string    `json:"helpUri"`
		Default          struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *sarifRegion `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
)

const home = "https://github.com/breakwater-go/breakwater"

// WriteSARIF writes findings in SARIF 2.1.0, as code hosts show them beside the lines they
// are about. Waived ones are suppressed results.
func WriteSARIF(w io.Writer, findings []*Finding) error {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "breakwater lint", InformationURI: home}
	index := map[*Rule]int{}
	for i, r := range Rules() {
		index[r] = i
		rule := sarifRule{ID: r.ID, Name: r.Name, ShortDescription: sarifText{r.Problem}, Help: sarifText{r.Fix}, HelpURI: home + "/blob/main/" + r.Page()}
		rule.Default.Level = r.Severity.String()
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, f := range findings {
		res := sarifResult{RuleID: f.Rule.ID, RuleIndex: index[f.Rule], Level: f.Rule.Severity.String(), Message: sarifText{f.Path + ": " + f.Message}}
		var loc sarifLocation
		// What was set by a flag has no file; its name takes the place, as a valid reference.
		loc.Physical.Artifact.URI = (&url.URL{Path: filepath.ToSlash(f.Origin.Source)}).String()
		if f.Origin.Line > 0 {
			loc.Physical.Region = &sarifRegion{f.Origin.Line, f.Origin.Column}
		}
		res.Locations = []sarifLocation{loc}
		if f.Waived {
			res.Suppressions = []sarifSuppression{{"inSource", f.Reason}}
		}
		run.Results = append(run.Results, res)
	}
	return writeIndented(w, sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}
