package near_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/config/internal/near"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"OpenFor", "MaxOpenFor", "Window", "MinCalls"}
	for give, want := range map[string]string{
		"OpenFro": "OpenFor", "openfor": "OpenFor", "open_for": "OpenFor", "Windwo": "Window", "min-calls": "MinCalls",
		"MinCall": "MinCalls", "": "", "Elephant": "", "MaxOpenFr": "MaxOpenFor",
	} {
		assert.Equal(t, want, near.Name(give, known), give)
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `there is no fruit "aple": did you mean "apple"?`, near.Unknown("fruit", "aple", []string{"pear", "apple"}))
	assert.Equal(t, `there is no fruit "x": want one of pear, apple`, near.Unknown("fruit", "x", []string{"pear", "apple"}))
	assert.Equal(t, `there is no fruit "x"`, near.Unknown("fruit", "x", nil))
}
