// Package near finds the name that a misspelt one most likely stands for.
package near

import (
	"fmt"
	"strings"
)

// listed is how many names are listed at most.
const listed = 50

// Unknown describes a name that does not exist beside those that do.
func Unknown(what, name string, known []string) string {
	if near := Name(name, known); near != "" {
		return fmt.Sprintf("there is no %s %q: did you mean %q?", what, name, near)
	}
	if len(known) == 0 {
		return fmt.Sprintf("there is no %s %q", what, name)
	}
	list, more := known, ""
	if len(list) > listed {
		list, more = known[:listed], fmt.Sprintf(" and %d more", len(known)-listed)
	}
	return fmt.Sprintf("there is no %s %q: want one of %s%s", what, name, strings.Join(list, ", "), more)
}

// Name returns the name that a misspelt one most likely stands for, or nothing when
// all are far away.
func Name(name string, known []string) string {
	best, least, plain := "", 1+max(2, len(name)/3), flat(name)
	for _, k := range known {
		if strings.EqualFold(plain, flat(k)) {
			return k
		}
		if far := len(name) - len(k); far >= least || -far >= least {
			continue // so many letters are missing or too many
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// flat drops what separates words.
func flat(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, s)
}

// distance is the least number of changed, missing and additional letters, and of
// swapped neighbours, that make b of a (Damerau's, in its restricted form).
func distance(a, b string) int {
	if len(a) > 128 || len(b) > 128 {
		return 128
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
