package redislimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

func per(n float64, d time.Duration) ratelimit.Rate { return ratelimit.Per(n, d) }

// Three limiters stand for three nodes.
func TestExactlyTheLimitPassesOverThreeNodes(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	for name, rule := range rules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []*sharedlimit.Limiter
			for range 3 {
				nodes = append(nodes, limiter(t, one(client(t, s.Addr), rule)))
			}
			passed := 0
			for i := range 100 {
				if allow(nodes[i%3]) {
					passed++
				}
			}
			assert.Equal(t, 10, passed)
		})
	}
}
