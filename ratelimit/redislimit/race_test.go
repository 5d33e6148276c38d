//go:build race

package redislimit_test

// raceEnabled says whether the race detector makes everything slow.
const raceEnabled = true
