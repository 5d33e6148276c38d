package load

import (
	"fmt"
	"strings"
	"time"
)

const barWidth = 20

// Bar returns a line that shows how far a run has come, at most 76 columns wide while the
// counts have few digits.
func Bar(p Progress) string {
	share := float64(p.Done()) / float64(max(p.Requests, 1))
	if p.Length > 0 {
		share = min(p.Elapsed.Seconds()/p.Length.Seconds(), 1)
	}
	full := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %v/%v  passed %d  429 %d  other %d  errors %d  in flight %d",
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
		min(p.Elapsed, p.Length).Truncate(time.Second), p.Length.Truncate(time.Second),
		p.Passed, p.Refused, p.Other, p.Errors, p.OnTheWay)
}
