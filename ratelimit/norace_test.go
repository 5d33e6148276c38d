//go:build !race

package ratelimit_test

// raceEnabled says that the race detector makes everything slow.
const raceEnabled = false
