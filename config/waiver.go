package config

import (
	"bufio"
	"bytes"
	"regexp"
	"strings"
)

// waiver is a comment that accepts a finding, such as
//
//   - bulkhead: {Limit: 8} # lint:allow BW021 the quota is ours alone
//
// It goes for what its own line is about, or, on a line by itself, for what follows it,
// other comments aside.
type waiver struct {
	origin Origin // of the comment
	source string
	line   int // that it goes for
	rule   string
	reason string
	used   bool
}

var waiverPattern = regexp.MustCompile(`#\s*lint:allow\s+(\S+)[ \t]*(.*)$`)

// waiversIn finds the waivers of a file.
func waiversIn(source string, data []byte) (list []waiver) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxBytes)
	pending := 0 // waivers at the end of the list that wait for their line
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		alone := strings.HasPrefix(strings.TrimSpace(text), "#")
		if !alone && strings.TrimSpace(text) != "" {
			for i := len(list) - pending; i < len(list); i++ {
				list[i].line = n
			}
			pending = 0
		}
		m := waiverPattern.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}
		w := waiver{
			origin: Origin{Layer: LayerFile, Source: source, Line: n, Column: m[0] + 1},
			source: source, line: n, rule: text[m[2]:m[3]], reason: strings.TrimSpace(text[m[4]:m[5]]),
		}
		list = append(list, w)
		if alone {
			pending++
		}
	}
	return list
}
