package vtime_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Goroutines of a bubble that got stuck stay.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("testing/synctest.testingSynctestTest"),
		goleak.IgnoreAnyFunction("github.com/breakwater-go/breakwater/internal/vtime.guarded"),
		goleak.IgnoreAnyFunction("github.com/breakwater-go/breakwater/internal/vtime_test.stuck"))
}
