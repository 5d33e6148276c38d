package main

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A page is what the checks need of a Markdown file.
type page struct {
	path    string
	blocks  []block
	links   []link
	anchors map[string]bool
	prelude block // Go declarations for the blocks of this page
	cases   []tableRow
	prose   []string // its lines, without code and comments
	faults  []fault
}

// A block is a fenced block of code.
type block struct {
	lang  string
	line  int    // line of the page on which the code begins, from 1
	text  string // ends with a newline unless it is empty
	embed string // what the comment in front of it says, or ""
}

// A link is a reference to something else.
type link struct {
	line   int
	target string
}

var (
	fenceLine   = regexp.MustCompile("^([ \t]*)(```+|~~~+)[ \t]*([^`]*)$")
	headingLine = regexp.MustCompile(`^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$`)
	anchorTag   = regexp.MustCompile(`<a\s[^>]*(?:id|name)="([^"]+)"`)
	codeSpan    = regexp.MustCompile("(?s)(`+)[^`].*?`+")
	inlineLink  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	definition  = regexp.MustCompile(`(?m)^ {0,3}\[[^\]\n]+\]:[ \t]+<?([^\s>]+)`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// parsePage takes a page apart. What is wrong with its form is in its faults.
func parsePage(path, text string) *page {
	p := &page{path: path, anchors: map[string]bool{}}
	lines := strings.Split(text, "\n")
	prose := make([]string, len(lines)) // the page without its code and comments
	embed, embedLine := "", 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if m := fenceLine.FindStringSubmatch(line); m != nil {
			b, next := fenced(lines, i, m)
			if next > len(lines) {
				p.faults = append(p.faults, fault{path, i + 1, "the block is not closed"})
			}
			b.embed, embed = embed, ""
			p.blocks = append(p.blocks, b)
			i = next - 1
			continue
		}
		if start := strings.Index(line, "<!--"); start >= 0 && !strings.Contains(line[:start], "`") {
			comment, next := commented(lines, i, start)
			body, word := strings.TrimSpace(comment), ""
			if f := strings.Fields(body); len(f) > 0 {
				word = f[0]
			}
			switch word {
			case "embed:":
				embed, embedLine = strings.TrimSpace(strings.TrimPrefix(body, word)), i+1
			case "snippet-prelude":
				p.prelude.line = i + 1
				p.prelude.text += strings.TrimPrefix(strings.TrimLeft(comment, " \t\n"), word) + "\n"
			}
			prose[i] = line[:start]
			i = next - 1
			continue
		}
		if embed != "" && strings.TrimSpace(line) != "" {
			p.faults = append(p.faults, fault{path, embedLine, "no block follows the embed comment"})
			embed = ""
		}
		prose[i] = line
	}
	if embed != "" {
		p.faults = append(p.faults, fault{path, embedLine, "no block follows the embed comment"})
	}
	p.prose = prose
	p.readProse(prose)
	return p
}

// fenced reads the block whose fence is on line i, and returns the number of the
// line after it.
func fenced(lines []string, i int, m []string) (block, int) {
	indent, fence := m[1], m[2]
	b := block{line: i + 2}
	if f := strings.Fields(m[3]); len(f) > 0 {
		b.lang = f[0]
	}
	var text strings.Builder
	for j := i + 1; j < len(lines); j++ {
		trimmed := strings.TrimSpace(lines[j])
		if strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]) == "" {
			b.text = text.String()
			return b, j + 1
		}
		line := lines[j]
		for k := 0; k < len(indent) && line != "" && (line[0] == ' ' || line[0] == '\t'); k++ {
			line = line[1:]
		}
		text.WriteString(line + "\n")
	}
	b.text = text.String()
	return b, len(lines) + 1
}

// commented reads the comment that begins on line i at the given column, and
// returns the number of the line after it.
func commented(lines []string, i, start int) (string, int) {
	text := strings.Join(lines[i:], "\n")[start+len("<!--"):]
	body, _, closed := strings.Cut(text, "-->")
	if !closed {
		return body, len(lines)
	}
	return body, i + 1 + strings.Count(body, "\n")
}

// readProse finds links and anchors.
func (p *page) readProse(prose []string) {
	seen := map[string]int{}
	for i, line := range prose {
		if m := caseRow.FindStringSubmatch(line); m != nil {
			p.cases = append(p.cases, tableRow{id: m[1], line: i + 1, text: line})
		}
		for _, m := range anchorTag.FindAllStringSubmatch(line, -1) {
			p.anchors[m[1]] = true
		}
		if m := headingLine.FindStringSubmatch(line); m != nil {
			a := slug(m[1])
			if n := seen[a]; n > 0 {
				p.anchors[a+"-"+strconv.Itoa(n)] = true
			} else {
				p.anchors[a] = true
			}
			seen[a]++
		}
	}
	text := codeSpan.ReplaceAllStringFunc(strings.Join(prose, "\n"), func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return '.'
		}, s)
	})
	for _, re := range []*regexp.Regexp{inlineLink, definition} {
		for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
			p.links = append(p.links, link{
				line:   1 + strings.Count(text[:m[2]], "\n"),
				target: text[m[2]:m[3]],
			})
		}
	}
}

// slug returns the anchor that GitHub gives to a heading.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
