package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
)

func TestPriorityString(t *testing.T) {
	t.Parallel()
	for p, want := range map[policy.Priority]string{-2: "unknown", -1: "low", 0: "normal", 1: "high", 2: "critical", 3: "unknown"} {
		assert.Equal(t, want, p.String())
	}
}
