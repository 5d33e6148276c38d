package sharedlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// bucketStore keeps the tokens of a limit for all processes. This one is in memory; yours
// is a trip away.
type bucketStore struct {
	bucket *ratelimit.Bucket
	trips  atomic.Int32
}

// Take takes as many tokens as are there, from Least to Want, or none.
func (s *bucketStore) Take(_ context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	s.trips.Add(1)
	now := time.Now()
	n := min(r.Want, max(int(s.bucket.Tokens(now)), r.Least))
	retryAfter, ok := s.bucket.Take(now, n)
	if !ok {
		return sharedlimit.Grant{RetryAfter: retryAfter}, nil
	}
	return sharedlimit.Grant{Tokens: n, Expires: time.Minute}, nil
}

// GiveBack puts back what was taken ahead and not used.
func (s *bucketStore) GiveBack(_ context.Context, _ *sharedlimit.Request, n int) error {
	s.bucket.Refund(time.Now(), n)
	return nil
}

// Probe finds out whether the store can be asked.
func (s *bucketStore) Probe(context.Context) error { return nil }

// Two pipelines, as in two processes, share a limit that a store of our own keeps.
func Example_store() {
	bucket, err := ratelimit.New("quota", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(1), Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := &bucketStore{bucket: bucket}
	limits := []sharedlimit.Limit{{Rate: ratelimit.PerMinute(1), Burst: 3}}
	var nodes [2]*policy.Pipeline
	for i := range nodes {
		quota, err := sharedlimit.New("quota", "", store, limits, sharedlimit.Settings{Nodes: len(nodes)})
		if err != nil {
			fmt.Println(err)
			return
		}
		if nodes[i], err = policy.New("vendor", quota); err != nil {
			fmt.Println(err)
			return
		}
		defer nodes[i].Close(context.Background())
	}
	for i := range 4 {
		_, err := policy.Do(context.Background(), nodes[i%2], func(context.Context) (int, error) { return 42, nil })
		fmt.Println("node", i%2, "is let through:", !errors.Is(err, ratelimit.ErrLimited))
	}
	fmt.Println(store.trips.Load(), "trips")
	// Output:
	// node 0 is let through: true
	// node 1 is let through: true
	// node 0 is let through: true
	// node 1 is let through: false
	// 4 trips
}
