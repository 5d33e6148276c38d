package demo

import (
	"context"
	"net/http"
	"time"
)

// naive calls as services do that nobody has looked at since they were written: a
// client with a timeout, three tries, and nothing between them.
type naive struct {
	client http.Client
}

const (
	naiveTries   = 3
	naiveTimeout = 800 * time.Millisecond
)

func newNaive() *naive {
	return &naive{client: http.Client{Transport: newTransport(), Timeout: naiveTimeout}}
}

// call implements caller. Like a plain Get it goes on when the user has left.
func (n *naive) call(ctx context.Context, _ int, url string, phase int) (a answer, err error) {
	ctx = context.WithoutCancel(ctx)
	for range naiveTries {
		var req *http.Request
		if req, err = newCall(ctx, url, phase); err != nil {
			return a, err
		}
		var resp *http.Response
		if resp, err = n.client.Do(req); err != nil {
			continue
		}
		if a, err = read(resp); err == nil {
			return a, nil
		}
	}
	return a, err
}

// newTransport returns a transport for many connections to a few hosts on loopback.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               nil, // never the environment's: all calls are to loopback
		MaxIdleConns:        0,   // no bound of its own
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
}
