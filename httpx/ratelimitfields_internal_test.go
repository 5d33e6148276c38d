package httpx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWriteStructuredFields(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	writeString(&b, "a \"b\" \\ ü\n")
	writeParam(&b, 'q', 1<<60)
	writeParam(&b, 'w', 0)
	assert.Equal(t, `"a \"b\" \\ ___";q=999999999999999;w=0`, b.String())
}
