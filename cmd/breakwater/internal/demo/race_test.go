//go:build race

package demo_test

// raceEnabled says that requests are several times as expensive as otherwise.
const raceEnabled = true
