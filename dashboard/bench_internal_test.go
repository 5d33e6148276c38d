//go:build unix

package dashboard

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// BenchmarkSample is one sample of 500 pipelines, which is taken once a second, with and
// without traffic between two of them.
func BenchmarkSample(b *testing.B) {
	for _, busy := range []bool{false, true} {
		name := map[bool]string{false: "idle", true: "busy"}[busy]
		b.Run(name, func(b *testing.B) {
			reg := fleet(b, 500)
			d, err := newDashboard(reg, Config{})
			require.NoError(b, err)
			defer d.Close()
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				if busy {
					b.StopTimer()
					for p := range reg.All() {
						_ = policy.Run(b.Context(), p, func(context.Context) error { return nil })
					}
					b.StartTimer()
				}
				now = now.Add(time.Second)
				d.sampler.sample(now)
			}
		})
	}
}

// BenchmarkServing is what one second costs with 500 busy pipelines and 50 streams over
// TCP, the viewers' own reading included: the time of the processor, of all threads, as a
// share of one core in cpu-%.
func BenchmarkServing(b *testing.B) {
	reg := fleet(b, 500)
	d, err := newDashboard(reg, Config{})
	require.NoError(b, err)
	srv := httptest.NewServer(d)
	var viewers sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}
	frames := make(chan struct{}, 1024)
	for range 50 {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+"/api/stream", http.NoBody)
		require.NoError(b, err)
		resp, err := client.Do(req)
		require.NoError(b, err)
		viewers.Go(func() {
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewReaderSize(resp.Body, 64<<10)
			for {
				line, err := lines.ReadSlice('\n')
				if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // a reader returns it as it is
					return
				}
				if string(line) == "event: fleet\n" {
					frames <- struct{}{}
				}
			}
		})
	}
	for range 50 {
		<-frames
	}
	now := time.Now()
	var spent time.Duration
	for b.Loop() {
		for p := range reg.All() {
			_ = policy.Run(b.Context(), p, func(context.Context) error { return nil })
		}
		before := processorTime(b)
		now = now.Add(time.Second)
		d.sampler.sample(now)
		for range 50 {
			<-frames
		}
		spent += processorTime(b) - before
	}
	b.ReportMetric(100*spent.Seconds()/float64(b.N), "cpu-%")
	d.Close()
	srv.CloseClientConnections()
	srv.Close()
	client.CloseIdleConnections()
	viewers.Wait()
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
