package sysload_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sysload"
)

// On the machine that the tests run on, whatever it is.
func TestRead(t *testing.T) {
	t.Parallel()
	c := sysload.NewCPU()
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; { //nolint:revive // it keeps a processor busy
	}
	share, err := c.Read()
	if err != nil {
		t.Skip(err)
	}
	assert.GreaterOrEqual(t, share, 0.0)
	assert.LessOrEqual(t, share, 2.0)
}

func TestReadConcurrentSafe(t *testing.T) {
	t.Parallel()
	c := sysload.NewCPU()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				_, _ = c.Read()
			}
		})
	}
	wg.Wait()
}

// A pipeline around a service's own work, which sheds load by CPU use too.
func ExampleNewCPU() {
	inbound, err := policy.New("inbound", ratelimit.System{CPU: sysload.NewCPU().Read, MaxCPU: 0.9})
	fmt.Println(inbound.Name(), err)
	// Output: inbound <nil>
}

func BenchmarkRead(b *testing.B) {
	c := sysload.NewCPU()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Read()
	}
}
