package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/dashboard"
)

// marks stand for levels beside words, as on the page.
var marks = [...]string{"●", "◆", "▲", "■"}

func mark(l dashboard.Level) string { return marks[min(max(int(l), 0), len(marks)-1)] }

// status says in a word or two how a dependency is.
func status(c *dashboard.Card) string {
	switch {
	case c.State != "" && c.State != "closed":
		return strings.ReplaceAll(c.State, "_", " ")
	case len(c.Refused) > 0:
		return "refusing calls"
	case c.Level == dashboard.LevelBad || c.ErrorLimit > 0 && c.Errors >= c.ErrorLimit/2:
		return "failing"
	case c.Fallback > 0:
		return "on fallback"
	case c.Level >= dashboard.LevelWarn:
		return "look"
	case c.Level == dashboard.LevelNote:
		return "note"
	}
	return "fine"
}

// story says why, since when and what follows, as the page does.
func story(c *dashboard.Card, now int64) string {
	if c.State == "" || c.State == "closed" {
		return ""
	}
	parts := []string{}
	if c.Why != "" {
		parts = append(parts, c.Why)
	}
	if c.Since > 0 {
		parts = append(parts, "for "+length(now-c.Since))
	}
	if c.Next > now {
		what := "ends in "
		if c.State == "open" {
			what = "next probe in "
		}
		parts = append(parts, what+length(c.Next-now))
	}
	return strings.Join(parts, "; ")
}

func length(ms int64) string {
	d := max(time.Duration(ms)*time.Millisecond, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

func refused(c *dashboard.Card) (sum float64) {
	for _, r := range c.Refused {
		sum += r.PerSecond
	}
	return sum
}

// columns are those of the list.
var columns = []string{"", "dependency", "state", "calls/s", "failed", "slow", "p50 ms", "p99 ms", "refused/s", "in flight", "waiting", "fallback"}

// cells are what the columns say of a dependency.
func cells(c *dashboard.Card) []string {
	of := func(n, most int) string {
		if most == 0 {
			return ""
		}
		return fmt.Sprintf("%d/%d", n, most)
	}
	share := func(f float64, has bool) string {
		if !has {
			return ""
		}
		return fmt.Sprintf("%.0f %%", 100*f)
	}
	return []string{
		mark(c.Level), c.Name, status(c), fmt.Sprintf("%.1f", c.Calls), share(c.Errors, true), share(c.Slow, c.SlowLimit > 0),
		fmt.Sprintf("%.1f", c.P50), fmt.Sprintf("%.1f", c.P99), fmt.Sprintf("%.1f", refused(c)),
		of(c.InFlight, c.Limit), of(c.Waiting, c.MaxWaiting), share(c.Fallback, c.HasBack),
	}
}

// verdict says in a line how it stands.
func verdict(o *dashboard.Overview) string {
	bad, warn := 0, 0
	for i := range o.Cards {
		switch o.Cards[i].Level {
		case dashboard.LevelBad:
			bad++
		case dashboard.LevelWarn:
			warn++
		case dashboard.LevelNote, dashboard.LevelFine:
		}
	}
	switch {
	case len(o.Cards) == 0:
		return "There is no dependency."
	case bad > 0:
		return fmt.Sprintf("%s %d of %d in trouble", mark(dashboard.LevelBad), bad, len(o.Cards))
	case warn > 0:
		return fmt.Sprintf("%s %d of %d need a look", mark(dashboard.LevelWarn), warn, len(o.Cards))
	}
	return fmt.Sprintf("%s all %d fine", mark(dashboard.LevelFine), len(o.Cards))
}

// faultsOf says what is wrong with the configuration that was loaded last. The head is
// empty when nothing is.
func faultsOf(o *dashboard.Overview) (head string, faults []string) {
	c := o.Config
	if c == nil || len(c.Faults) == 0 {
		return "", nil
	}
	return fmt.Sprintf("the configuration loaded at %s is wrong; version %d stays in force", clock(c.FaultAt), c.Version), c.Faults
}
