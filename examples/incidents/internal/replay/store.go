package replay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// Store stands for the Redis of a limit that is shared: a bucket for each key, in this
// process. A real one needs sockets, for which virtual time does not wait. It keeps the
// rules of package redislimit: one trip for each question, and a time of its own.
type Store struct {
	buckets *ratelimit.Buckets
	trip    time.Duration
	mode    atomic.Int32
	trips   atomic.Int64
}

// The ways in which a store can be away.
const (
	Well  int32 = iota
	Slow        // it answers after 10 s
	Wrong       // it answers with an error
)

// NewStore returns a store that takes a time for each question.
func (w *World) NewStore(rate ratelimit.Rate, burst int, trip time.Duration) *Store {
	b, err := ratelimit.NewKeyed("", ratelimit.Keyed{Rate: rate, Burst: burst})
	w.Must(err)
	return &Store{buckets: b, trip: trip}
}

// Set makes the store well or not.
func (s *Store) Set(mode int32) { s.mode.Store(mode) }

// Trips counts the questions.
func (s *Store) Trips() int { return int(s.trips.Load()) }

func (s *Store) answer(ctx context.Context) error {
	s.trips.Add(1)
	trip := s.trip
	if s.mode.Load() == Slow {
		trip = 10 * time.Second
	}
	if err := Sleep(ctx, trip); err != nil {
		return err
	}
	if s.mode.Load() == Wrong {
		return errors.New("store: READONLY you can't write against a read only replica")
	}
	return nil
}

// Take implements [sharedlimit.Store].
func (s *Store) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	if err := s.answer(ctx); err != nil {
		return sharedlimit.Grant{}, err
	}
	now, key := time.Now(), r.Keys[0]
	there := int(s.buckets.Tokens(now, key))
	if r.Caps != nil && r.Caps[0] >= 0 && there > r.Caps[0] {
		s.buckets.Take(now, key, there-r.Caps[0])
		there = r.Caps[0]
	}
	n := min(r.Want, max(there, r.Least))
	if after, ok := s.buckets.Take(now, key, n); !ok {
		return sharedlimit.Grant{RetryAfter: after}, nil
	}
	return sharedlimit.Grant{Tokens: n, Expires: time.Minute}, nil
}

// GiveBack implements [sharedlimit.Store].
func (s *Store) GiveBack(ctx context.Context, r *sharedlimit.Request, n int) error {
	err := s.answer(ctx)
	if err == nil {
		s.buckets.Refund(time.Now(), r.Keys[0], n)
	}
	return err
}

// Probe implements [sharedlimit.Store].
func (s *Store) Probe(ctx context.Context) error { return s.answer(ctx) }
