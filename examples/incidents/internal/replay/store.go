package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/redisconfig"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// The ways in which a store can be.
const (
	Well  = iota
	Slow  // it answers after 10 s
	Wrong // it answers with an error
)

// Store stands for the Redis that instances share their limits in. A real one needs
// sockets, for which virtual time does not wait. It keeps the rules of package redislimit:
// one trip for each question, a time of its own, a window that begins with the first call
// of its key, and a key that ends with it.
type Store struct {
	trip time.Duration

	mu      sync.Mutex
	mode    int
	trips   int
	buckets map[string]*ratelimit.Bucket
	windows map[string]*window
}

// window is what is kept of a key: of a fixed window when it ends and how many calls came,
// of a sliding one when they came.
type window struct {
	ends  time.Time
	count int
	calls []time.Time
}

// NewStore returns a store that takes a time for each question.
func NewStore(trip time.Duration) *Store {
	return &Store{trip: trip, buckets: map[string]*ratelimit.Bucket{}, windows: map[string]*window{}}
}

// Set makes the store well or not.
func (s *Store) Set(mode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

// Trips counts the questions.
func (s *Store) Trips() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trips
}

// TTL returns how long a key is still kept, and how many are.
func (s *Store) TTL(key string) (ttl time.Duration, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for k, w := range s.windows {
		if !now.Before(w.ends) {
			delete(s.windows, k) // as Redis does by itself
		}
	}
	if w := s.windows[key]; w != nil {
		ttl = w.ends.Sub(now)
	}
	return ttl, len(s.windows)
}

// answer waits for as long as an answer takes.
func (s *Store) answer(ctx context.Context) error {
	s.mu.Lock()
	s.trips++
	trip := s.trip
	if s.mode == Slow {
		trip = 10 * time.Second
	}
	s.mu.Unlock()
	if err := Sleep(ctx, trip); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == Wrong {
		return errors.New("store: a write against a replica")
	}
	return nil
}

// limitInStore is one limit of a policy, as the store keeps it. It is a
// [sharedlimit.Store].
type limitInStore struct {
	*Store

	limit redisconfig.Limit
}

func (l limitInStore) bucket(key string) *ratelimit.Bucket {
	b := l.buckets[key]
	if b == nil {
		b, _ = ratelimit.New("", ratelimit.TokenBucket{Rate: l.limit.Rate, Burst: l.limit.Burst}) // validated
		l.buckets[key] = b
	}
	return b
}

// Take implements [sharedlimit.Store].
func (l limitInStore) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	if err := l.answer(ctx); err != nil {
		return sharedlimit.Grant{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, key := time.Now(), r.Keys[0]
	switch l.limit.Rule {
	case redisconfig.FixedWindow:
		return l.count(now, key, r), nil
	case redisconfig.SlidingWindow, redisconfig.SlidingLog:
		return l.slide(now, key, r), nil
	default: // a token bucket
	}
	b := l.bucket(key)
	there := int(b.Tokens(now))
	if r.Caps != nil && r.Caps[0] >= 0 && there > r.Caps[0] {
		b.Take(now, there-r.Caps[0])
		there = r.Caps[0]
	}
	n := min(r.Want, max(there, r.Least))
	if after, ok := b.Take(now, n); !ok {
		return sharedlimit.Grant{RetryAfter: after}, nil
	}
	return sharedlimit.Grant{Tokens: n, Expires: time.Minute}, nil
}

// count takes from a window. A call that is refused changes nothing.
func (l limitInStore) count(now time.Time, key string, r *sharedlimit.Request) sharedlimit.Grant {
	w := l.windows[key]
	if w == nil || !now.Before(w.ends) {
		w = &window{ends: now.Add(l.limit.Window)}
		l.windows[key] = w
	}
	left := w.ends.Sub(now)
	n := min(r.Want, l.limit.Limit-w.count)
	if n < r.Least {
		return sharedlimit.Grant{RetryAfter: left}
	}
	w.count += n
	return sharedlimit.Grant{Tokens: n, Expires: left, Ends: left}
}

// slide takes from a window that ends now.
func (l limitInStore) slide(now time.Time, key string, r *sharedlimit.Request) sharedlimit.Grant {
	w := l.windows[key]
	if w == nil {
		w = new(window)
		l.windows[key] = w
	}
	for len(w.calls) > 0 && now.Sub(w.calls[0]) >= l.limit.Window {
		w.calls = w.calls[1:]
	}
	n := min(r.Want, l.limit.Limit-len(w.calls))
	if n < r.Least {
		return sharedlimit.Grant{RetryAfter: w.calls[0].Add(l.limit.Window).Sub(now)}
	}
	for range n {
		w.calls = append(w.calls, now)
	}
	w.ends = now.Add(l.limit.Window)
	return sharedlimit.Grant{Tokens: n, Expires: l.limit.Window}
}

// GiveBack implements [sharedlimit.Store].
func (l limitInStore) GiveBack(ctx context.Context, r *sharedlimit.Request, n int) error {
	if err := l.answer(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.windows[r.Keys[0]]; w != nil {
		w.count -= n
		w.calls = w.calls[:max(0, len(w.calls)-n)]
	}
	if b := l.buckets[r.Keys[0]]; b != nil {
		b.Refund(time.Now(), n)
	}
	return nil
}

// Probe implements [sharedlimit.Store].
func (l limitInStore) Probe(ctx context.Context) error { return l.answer(ctx) }

// inStore is a policy of the kind redis whose limit is in a Store.
type inStore struct {
	store    *Store
	settings redisconfig.Settings
	logger   *slog.Logger
}

// Kind is the kind redis, with this store in place of the clients.
func (s *Store) kind(logger *slog.Logger) config.Kind {
	kind := redisconfig.Kind(nil) // for lint and the schema
	kind.Make = func(_ string, settings any) (policy.Policy, error) {
		of, ok := settings.(redisconfig.Settings)
		if !ok || len(of.Limits) != 1 {
			return nil, fmt.Errorf("replay: want settings with one limit: %T", settings)
		}
		return inStore{s, of, logger}, nil
	}
	return kind
}

// BuildPolicy implements [policy.Policy].
func (i inStore) BuildPolicy() (policy.Part, error) {
	of := i.settings.Limits[0]
	limit := sharedlimit.Limit{Name: of.Name, Rate: of.Rate, Burst: of.Burst}
	if of.Rule != redisconfig.TokenBucket {
		limit.Rate, limit.Burst = ratelimit.Rate{Tokens: float64(of.Limit), Per: of.Window}, of.Limit
	}
	if of.Keyed {
		limit.KeyOf = sharedlimit.ByKey
	}
	settings := i.settings.Settings
	settings.Logger = i.logger
	live, err := sharedlimit.New("redis", i.settings.Name, limitInStore{i.store, of}, []sharedlimit.Limit{limit}, settings)
	if err != nil {
		return policy.Part{}, err
	}
	return live.BuildPolicy()
}
