package sharedlimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// fake is a store in memory: a token bucket for each key. It can fail, and be slow.
type fake struct {
	buckets *ratelimit.Buckets
	burst   int
	expires time.Duration

	mu     sync.Mutex
	err    error
	delay  time.Duration
	takes  []sharedlimit.Request
	backs  int
	nodes  int
	left   bool
	closed bool
	panics bool
}

var errDown = errors.New("down")

func newFake(tb testing.TB, rate ratelimit.Rate, burst int) *fake {
	tb.Helper()
	b, err := ratelimit.NewKeyed("", ratelimit.Keyed{Rate: rate, Burst: burst})
	require.NoError(tb, err)
	return &fake{buckets: b, burst: burst, expires: time.Hour}
}

func (f *fake) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	f.mu.Lock()
	err, delay, panics := f.err, f.delay, f.panics
	f.takes = append(f.takes, *r)
	f.mu.Unlock()
	if panics {
		panic("store")
	}
	if err := wait(ctx, delay); err != nil {
		return sharedlimit.Grant{}, err
	}
	if err != nil {
		return sharedlimit.Grant{}, err
	}
	now := time.Now()
	there := f.buckets.Tokens(now, r.Keys[0])
	if r.Caps != nil && r.Caps[0] >= 0 && int(there) > r.Caps[0] {
		f.buckets.Take(now, r.Keys[0], int(there)-r.Caps[0])
		there = float64(r.Caps[0])
	}
	n := min(r.Want, max(int(there), r.Least))
	if after, ok := f.buckets.Take(now, r.Keys[0], n); !ok {
		return sharedlimit.Grant{RetryAfter: after}, nil
	}
	return sharedlimit.Grant{Tokens: n, Expires: f.expires}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) GiveBack(_ context.Context, r *sharedlimit.Request, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backs += n
	f.buckets.Refund(time.Now(), r.Keys[0], n)
	return f.err
}

func (f *fake) Probe(ctx context.Context) error {
	f.mu.Lock()
	err, delay := f.err, f.delay
	f.mu.Unlock()
	return errors.Join(wait(ctx, delay), err)
}

func (f *fake) Close(context.Context) error {
	f.closed = true
	return nil
}

func (f *fake) set(err error, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.delay = err, delay
}

func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.takes)
}

// counting is a fake that knows how many processes there are.
type counting struct{ *fake }

func (f counting) Nodes(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes, f.err
}

func (f counting) Leave(context.Context) error {
	f.left = true
	return nil
}

func live(tb testing.TB, store sharedlimit.Store, rate ratelimit.Rate, burst int, s sharedlimit.Settings) *sharedlimit.Limiter {
	tb.Helper()
	l, err := sharedlimit.New("fake", "", store, []sharedlimit.Limit{{Name: "limit", Rate: rate, Burst: burst, KeyOf: sharedlimit.ByKey}}, s)
	require.NoError(tb, err)
	return l
}

func closed(tb testing.TB, l *sharedlimit.Limiter) {
	tb.Helper()
	require.NoError(tb, l.Close(context.WithoutCancel(tb.Context())))
}

func allow(l *sharedlimit.Limiter) bool { return l.Wait(context.Background(), 1) == nil }

func shared(l *sharedlimit.Limiter) *policy.SharedSnapshot {
	return l.Snapshot(time.Now()).Limiter.Shared
}

func key(k string) context.Context {
	return policy.WithCall(context.Background(), policy.Call{Key: k})
}
