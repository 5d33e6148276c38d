package policy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// Layers on top find the answer through whatever wraps the error.
func TestErrorsAreNotRetryable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&policy.RejectedError{Policy: "breaker", Reason: policy.ReasonOpen},
		&policy.GaveUpError{Last: errors.New("boom"), Stop: policy.StopBudget},
	} {
		var asked interface{ RetryableError() bool }
		require.ErrorAs(t, fmt.Errorf("sent: %w", err), &asked)
		assert.False(t, asked.RetryableError(), "%T", err)
	}
}
