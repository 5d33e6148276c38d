package redislimit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// store keeps counts by scripts.
type store struct {
	client  atomic.Pointer[redis.UniversalClient]
	options *redis.UniversalOptions // of a client that belongs to the store
	prefix  string                  // of all keys, with the name
	limits  []Limit
	shards  int
	scripts scripts
	carrier carrier
	args    atomic.Pointer[[][]any] // what the limits are told, as text, by shard; never changed

	// byKey says that the call's key says where its keys lie.
	byKey bool

	turn     atomic.Uint32
	id       string        // of this process, or rather of this limiter in it
	remember time.Duration // how long a process counts that was not heard of
	nodesKey string
	kinds    []kind
	suffixes []string // what the keys of the limits end with
	unkeyed  [][]any  // the keys, by shard, when all calls have the same
	windows  bool     // some limit is not a token bucket
}

var (
	_ sharedlimit.Store   = (*store)(nil)
	_ sharedlimit.Census  = (*store)(nil)
	_ sharedlimit.Tunable = (*store)(nil)
	_ policy.Closer       = (*store)(nil)
)

// newStore returns the store of an effective configuration.
func newStore(c Config) *store {
	s := &store{options: c.Options, prefix: c.Prefix + ":{" + escaped(c.Name), limits: c.Limits, shards: c.Shards}
	if s.options != nil {
		c.Client = NewClient(s.options)
	}
	s.client.Store(&c.Client)
	if single, ok := c.Client.(*redis.Client); ok { // in a cluster a slow master would keep up all
		s.carrier.most = single.Options().PoolSize
	}
	s.byKey = true
	for _, l := range c.Limits {
		p, _ := l.Rule.plan(c.Shards)
		s.kinds = append(s.kinds, p.kind)
		s.suffixes = append(s.suffixes, escaped(l.Name)+":"+p.kind.name())
		s.byKey = s.byKey && l.Keyed
		s.windows = s.windows || p.kind != bucket
	}
	s.byKey = s.byKey || len(c.Limits) == 1 && c.Limits[0].KeyOf != nil
	s.scripts = compose(s.kinds)
	s.plan(c.Limits)
	s.id = rand.Text()
	s.remember = 3 * max(c.Settings.Heartbeat, 0)
	if s.remember == 0 {
		s.remember = 3 * time.Second
	}
	s.nodesKey = s.prefix + "}:nodes"
	if !slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Keyed || l.KeyOf != nil }) {
		for i := range s.shards {
			var keys []any
			for _, k := range s.keys(&sharedlimit.Request{Keys: make([]string, len(c.Limits))}, i) {
				keys = append(keys, k)
			}
			s.unkeyed = append(s.unkeyed, keys)
		}
	}
	return s
}

// redis returns the client.
func (s *store) redis() redis.UniversalClient { return *s.client.Load() }

// plan makes the arguments of all shards.
func (s *store) plan(limits []Limit) {
	args := make([][]any, s.shards)
	for i := range args {
		for _, l := range limits {
			p, _ := l.Rule.plan(s.shards) // valid
			for _, a := range p.args(i) {
				args[i] = append(args[i], fmt.Sprint(a))
			}
		}
	}
	s.args.Store(&args)
}

// SetRate implements [sharedlimit.Tunable].
func (s *store) SetRate(rate ratelimit.Rate) (burst, most int, err error) {
	l := s.limits[0]
	switch r := l.Rule.(type) {
	case TokenBucket:
		p, _ := r.plan(s.shards)
		r.Rate, r.Burst = rate, p.total
		l.Rule = r
	case FixedWindow:
		r.Limit = limitAt(rate, r.Window)
		l.Rule = r
	case SlidingWindow:
		r.Limit = limitAt(rate, r.Window)
		l.Rule = r
	case SlidingLog:
		r.Limit = limitAt(rate, r.Window)
		l.Rule = r
	}
	_, _, errs := fraction(rate)
	p, faults := l.Rule.plan(s.shards)
	if len(errs) == 0 {
		errs = faults
	}
	if len(errs) > 0 {
		return 0, 0, errors.Join(errs...)
	}
	s.plan([]Limit{l})
	return p.total, p.burst, nil
}

// limitAt returns the limit of a window that is nearest to a rate from below, at least 1.
func limitAt(rate ratelimit.Rate, window time.Duration) int {
	tokens := rate.Tokens * (float64(window) / float64(rate.Per))
	return int(min(max(tokens*(1+1e-12), 1), maxTokens)) // a whole number may come out a hair below
}

// command returns the arguments of a script for a call, with room for those that say which
// script it is, and for more.
func (s *store) command(r *sharedlimit.Request, shard, n, more int) (args []any, keys int) {
	told := (*s.args.Load())[shard]
	if len(s.unkeyed) > shard {
		k := s.unkeyed[shard]
		args = make([]any, 3, 4+len(k)+len(told)+more)
		return append(append(append(args, k...), told...), n), len(k)
	}
	k := s.keys(r, shard)
	args = make([]any, 3, 4+len(k)+len(told)+more)
	for _, key := range k {
		args = append(args, key)
	}
	return append(append(args, told...), n), len(k)
}

// Take implements [sharedlimit.Store].
func (s *store) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	shard := s.choose(r)
	more := 0
	if r.Caps != nil {
		more = 1 + len(r.Caps)
	} else if r.Least != r.Want {
		more = 1
	}
	args, keys := s.command(r, shard, r.Want, more)
	if more > 0 {
		args = append(args, r.Least)
	}
	for _, n := range r.Caps {
		if n >= 0 {
			n = part(n, s.shards, shard)
		}
		args = append(args, n)
	}
	v, err := s.scripts.take.run(ctx, &s.carrier, s.redis(), keys, args)
	if err != nil {
		return sharedlimit.Grant{}, err
	}
	g, ok := grant(v, r.Want)
	if !ok {
		return sharedlimit.Grant{}, fmt.Errorf("redislimit: the script answered %v", v)
	}
	if s.windows {
		g.Ends = g.Expires
	}
	return g, nil
}

// grant reads the answer of the script: a number is how long it matters that all was granted.
func grant(v any, want int) (g sharedlimit.Grant, ok bool) {
	switch v := v.(type) {
	case int64:
		return sharedlimit.Grant{Tokens: want, Expires: micros(v)}, true
	case []any:
		if len(v) != 4 {
			return g, false
		}
		var n [4]int64
		for i := range n {
			if n[i], ok = v[i].(int64); !ok {
				return g, false
			}
		}
		return sharedlimit.Grant{Tokens: int(n[0]), Limit: int(max(n[1]-1, 0)), RetryAfter: micros(n[2]), Expires: micros(n[3])}, true
	}
	return g, false
}

// micros returns a number of microseconds, as far as it goes.
func micros(n int64) time.Duration {
	return time.Duration(min(n, int64(maxPeriod/time.Microsecond))) * time.Microsecond
}

// GiveBack implements [sharedlimit.Store].
func (s *store) GiveBack(ctx context.Context, r *sharedlimit.Request, n int) error {
	args, keys := s.command(r, s.choose(r), n, 0)
	_, err := s.scripts.back.run(ctx, &s.carrier, s.redis(), keys, args)
	return err
}

// Probe implements [sharedlimit.Store]. In a cluster every master has to answer.
//
// The pool of go-redis that could not dial a few times waits for a second before it tries
// again, and a cluster client may not have heard of the new masters. So the store's own
// client is replaced by a new one, if that is answered.
func (s *store) Probe(ctx context.Context) error {
	if s.options == nil {
		return s.probe(ctx, s.redis())
	}
	c := NewClient(s.options)
	if err := s.probe(ctx, c); err != nil {
		_ = c.Close() // it was of no use
		return err
	}
	old := s.client.Swap(&c)
	_ = (*old).Close() // whatever is under way there has failed
	return nil
}

func (s *store) probe(ctx context.Context, c redis.UniversalClient) error {
	if c, ok := c.(*redis.ClusterClient); ok {
		if err := c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error { return m.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	return probeScript.Run(ctx, c, []string{s.prefix + "}:probe"}).Err()
}

// Nodes implements [sharedlimit.Census].
func (s *store) Nodes(ctx context.Context) (int, error) {
	return nodesScript.Run(ctx, s.redis(), []string{s.nodesKey}, s.id, s.remember.Microseconds()).Int()
}

// Leave implements [sharedlimit.Census].
func (s *store) Leave(ctx context.Context) error {
	return s.redis().ZRem(ctx, s.nodesKey, s.id).Err()
}

// Close implements [policy.Closer].
func (s *store) Close(context.Context) error {
	if s.options != nil {
		return s.redis().Close()
	}
	return nil
}

// choose returns the shard of a call.
func (s *store) choose(r *sharedlimit.Request) int {
	if s.shards == 1 {
		return 0
	}
	if !s.byKey {
		for _, key := range r.Keys {
			if key != "" {
				return int(crc32.ChecksumIEEE([]byte(key)) % uint32(s.shards)) //nolint:gosec // at most maxShards; the same in every process
			}
		}
	}
	return int(s.turn.Add(1) % uint32(s.shards)) //nolint:gosec // at most maxShards
}

// keys returns the keys of a call, all in one slot: what is between { and }, and nothing
// else, decides about that.
func (s *store) keys(r *sharedlimit.Request, shard int) []string {
	var tag strings.Builder
	tag.WriteString(s.prefix)
	if s.byKey {
		tag.WriteByte('|')
		tag.WriteString(shortened(r.Keys[0]))
	}
	if s.shards > 1 {
		tag.WriteByte('#')
		tag.WriteString(strconv.Itoa(shard))
	}
	tag.WriteString("}:")
	keys := make([]string, len(s.suffixes))
	for i, suffix := range s.suffixes {
		keys[i] = tag.String() + suffix
		if !s.byKey && r.Keys[i] != "" {
			keys[i] += ":" + shortened(r.Keys[i])
		}
	}
	return keys
}

// escaped returns what can stand in a tag, different for different text.
func escaped(text string) string {
	if !strings.ContainsAny(text, "%{}|#:") {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; strings.IndexByte("%{}|#:", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// shortened is escaped, for keys that come from callers: a long one is replaced by its
// digest.
func shortened(key string) string {
	if len(key) > 128 {
		sum := sha256.Sum256([]byte(key))
		return "%sha256:" + hex.EncodeToString(sum[:])
	}
	return escaped(key)
}
