package dashboard

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the most bytes of one text that came from outside.
const maxText = 256

// clean makes text that came from outside fit to be shown: valid UTF-8, without control
// characters and marks that change the direction of what follows, and not longer than
// most bytes. Markup stays as it is; it is for the page to show it as text.
func clean(s string, most int) string {
	cut := false
	if len(s) > most {
		s, cut = s[:most], true
		for s != "" { // not within a character
			r, size := utf8.DecodeLastRuneInString(s)
			if r != utf8.RuneError || size > 1 {
				break
			}
			if utf8.ValidString(s[:len(s)-1]) {
				s = s[:len(s)-1]
				break
			}
			s = s[:len(s)-1]
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return '\uFFFD'
		}
		return r
	}, s)
	if cut {
		s += "…"
	}
	return s
}

// address matches what looks like a URL: a scheme, and all up to a blank or a quote.
var address = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s"'<>]+`)

// withoutSecrets takes the user info, the query and the fragment out of each URL in s.
func withoutSecrets(s string) string {
	return address.ReplaceAllStringFunc(s, func(u string) string {
		scheme, rest, _ := strings.Cut(u, "://")
		if i := strings.IndexAny(rest, "?#"); i >= 0 {
			rest = rest[:i] + "?…"
		}
		host, path := rest, ""
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			host, path = rest[:i], rest[i:]
		}
		// A password may hold a slash that nobody escaped.
		if i := strings.LastIndexByte(rest, '@'); i >= len(host) && strings.Contains(host, ":") {
			host, path = rest[i+1:], ""
		}
		if i := strings.LastIndexByte(host, '@'); i >= 0 {
			host = host[i+1:]
		}
		return scheme + "://" + host + path
	})
}

// errorText is the text of an error as a viewer who may see it is shown it.
func errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() { // the error is not ours
		if recover() != nil {
			text = "(the error has no text)"
		}
	}()
	s := err.Error()
	if len(s) > 4*maxText {
		s = s[:4*maxText]
	}
	return clean(withoutSecrets(s), maxText)
}
