package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// metricsSource is where metrics are described, as calls with the name as the first
// argument.
const metricsSource = "otelx/descs.go"

var (
	metricDesc = regexp.MustCompile(`(?:metric|pipeline|of)\("([a-z_]+)"`)
	// What follows a colon is the name of a recording rule: level:metric:operations.
	metricName = regexp.MustCompile(`(?:^|[^:\w])breakwater_([a-z_]*[a-z])\b`)
)

// metricNames returns the names of all metrics, without their common prefix.
func metricNames(fsys fs.FS) (map[string]bool, error) {
	text, err := fs.ReadFile(fsys, metricsSource)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, m := range metricDesc.FindAllStringSubmatch(string(text), -1) {
		names[m[1]] = true
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s describes no metrics in the form that is looked for", metricsSource)
	}
	return names, nil
}

// checkMetrics looks whether every metric that a page names is there.
func checkMetrics(names map[string]bool, p *page, text string) []fault {
	if names == nil {
		return nil
	}
	var faults []fault
	n := 0
	for line := range strings.Lines(text) {
		n++
		for _, m := range metricName.FindAllStringSubmatch(line, -1) {
			name := m[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !names[name] && !names[m[1]] {
				faults = append(faults, fault{p.path, n, "there is no metric breakwater_" + m[1]})
			}
		}
	}
	return faults
}
