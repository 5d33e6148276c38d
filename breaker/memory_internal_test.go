//go:build !race

package breaker

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a key costs, so that it can be told. It has no other test beside it.
func TestAllocMemoryOfAKey(t *testing.T) {
	const keys = 10_000
	k, err := newKeyedAt(time.Now(), "", Keyed{MaxKeys: keys})
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keys {
		k.get(fmt.Sprintf("host-%05d", i), k.base)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / keys
	t.Log(each, "bytes")
	assert.Less(t, each, uint64(1200+64*runtime.GOMAXPROCS(0)))
	runtime.KeepAlive(k)
}
