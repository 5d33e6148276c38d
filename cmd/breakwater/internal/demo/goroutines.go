package demo

import (
	"bufio"
	"bytes"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
)

// worldLabel is the profiler label of all goroutines that a world's service has
// caused: those of its connections and handlers, and those of its transports.
const worldLabel = "world"

// countGoroutines returns the number of goroutines of each world, as the goroutine
// profile shows them.
func countGoroutines() (map[string]int, error) {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		return nil, fmt.Errorf("goroutine profile: %w", err)
	}
	return parseGoroutines(&buf), nil
}

// parseGoroutines reads a goroutine profile in its legacy text form: a line with the
// number of goroutines that share a stack, such as "12 @ 0x43 0x44", followed by one
// with their labels, such as `# labels: {"world":"protected"}`, if they have any.
func parseGoroutines(profile *bytes.Buffer) map[string]int {
	counts := map[string]int{}
	n := 0
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		line := lines.Text()
		if count, _, ok := strings.Cut(line, " @"); ok {
			n, _ = strconv.Atoi(count) // 0 for a line of another kind
			continue
		}
		labels, ok := strings.CutPrefix(line, "# labels: ")
		if !ok {
			continue
		}
		if _, rest, ok := strings.Cut(labels, strconv.Quote(worldLabel)+":\""); ok {
			world, _, _ := strings.Cut(rest, `"`)
			counts[world] += n
		}
		n = 0
	}
	return counts
}
