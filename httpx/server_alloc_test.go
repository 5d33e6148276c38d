//go:build !race

package httpx_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a request costs beyond its handler: the writer that notes the answer. A key, fields and a
// context of its own cost more; so do refusals, whose header is written.
func TestAllocServer(t *testing.T) {
	for _, bc := range benchServers {
		h, w, r := bc.build(t), newSink(), from("192.0.2.1:1234")
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), bc.allocs, bc.name)
	}
}
