//go:build !race

package main

// raceEnabled says that the race detector makes everything slow.
const raceEnabled = false
