package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// kindName is the kind of these policies, and their default instance name.
const kindName = "redis"

const (
	defaultPrefix = "breakwater"
	maxLimits     = 8
	maxShards     = 1024
)

// Config configures a limit that is kept in Redis or Valkey; it is handed to [policy.New]
// as it is, or to [New] for a live limiter. Limits are required, and one of Client and
// Options. New copies the Config; later changes have no effect.
type Config struct {
	// Name is the instance name, the policy label everywhere, and part of the keys: what
	// has the same Prefix and Name, and the same kind of limits, shares them. Empty means
	// "redis".
	Name string

	// Client is the client to use, which stays the caller's: see [NewClient]. A client of
	// go-redis that would go on after its context is done is refused, as are other
	// settings that make a call outlast its Timeout.
	Client redis.UniversalClient

	// Options are those of a client that belongs to the limit, made by NewClient and
	// closed with it, in place of Client. Nil means that there is a Client.
	Options *redis.UniversalOptions

	// Prefix is what all keys begin with. Empty means "breakwater".
	Prefix string

	// Limits are the limits that a call must keep, from 1 to 8: all or nothing. Their
	// names must differ.
	//
	// All keys of a call lie in one slot of a cluster. Those of one limit, and of several
	// that all count by the key of the call (Keyed), lie wherever the call's key puts
	// them. Other limits of one Config lie in one slot together, those of all users too,
	// as each of these is decided together with the others: Shards divide them.
	Limits []Limit

	// Shards divides each limit into so many, from 1 to 1024, which lie in slots of their
	// own: for a key so hot that one server is too slow for it. Calls go to the shards in
	// turn; of several limits, all of which are not counted by the call's key, to the
	// shard that the first KeyOf chooses. A call may cost no more than a shard can hold.
	// Zero means 1.
	Shards int

	// Settings say how long the store may take, and what is done while it cannot be
	// asked, how the limit is divided among processes, and whether tokens are taken
	// ahead.
	Settings sharedlimit.Settings
}

// Limit is one of the limits that a call must keep.
type Limit struct {
	// Name is the name of the limit: part of its keys, and what a refusal says when there
	// are several. Empty means "limit", which only one can have.
	Name string

	// Rule is how it counts: [TokenBucket], [FixedWindow], [SlidingWindow] or
	// [SlidingLog]. It has no default.
	Rule Rule

	// Keyed gives each key of the calls ([policy.Call] Key) a limit of its own. False
	// means one for all calls, unless KeyOf is set.
	Keyed bool

	// KeyOf returns what a call is counted by, when that is not its key: a route, a
	// shop. It runs on the calling goroutine and may run concurrently. Nil means what
	// Keyed says.
	KeyOf func(ctx context.Context, c *policy.Call) string
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	switch {
	case c.Client == nil && c.Options == nil:
		errs = append(errs, fault("Client", nil, "want a client, or Options for one"))
	case c.Client != nil && c.Options != nil:
		errs = append(errs, fault("Options", nil, "want none beside a Client"))
	case c.Client != nil:
		errs = append(errs, clientFaults(c.Client)...)
	case len(c.Options.Addrs) == 0:
		errs = append(errs, fault("Options.Addrs", nil, "want at least one address, such as 127.0.0.1:6379"))
	}
	if c.Shards < 0 || c.Shards > maxShards {
		errs = append(errs, fault("Shards", c.Shards, "want 1 to %d, or 0 (1)", maxShards))
		c.Shards = 0
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		errs = append(errs, fault("Prefix", c.Prefix, "want none of { and }, which choose the slot of a key"))
	}
	if len(c.Limits) == 0 || len(c.Limits) > maxLimits {
		errs = append(errs, fault("Limits", len(c.Limits), "want 1 to %d limits", maxLimits))
	}
	seen := map[string]bool{}
	for i, l := range c.Limits {
		field := fmt.Sprintf("Limits[%d].", i)
		if l.Name = l.name(); seen[l.Name] {
			errs = append(errs, fault(field+"Name", l.Name, "want another name: an earlier limit has it"))
		}
		seen[l.Name] = true
		if l.Keyed && l.KeyOf != nil {
			errs = append(errs, fault(field+"Keyed", true, "want false beside KeyOf, which says what to count by"))
		}
		if l.Rule == nil {
			errs = append(errs, fault(field+"Rule", nil, "want TokenBucket, FixedWindow, SlidingWindow or SlidingLog"))
			continue
		}
		_, faults := l.Rule.plan(max(c.Shards, 1))
		for _, err := range faults {
			if f, ok := errors.AsType[*policy.ConfigError](err); ok {
				err = fault(field+"Rule."+f.Field, f.Value, "%s", f.Want)
			}
			errs = append(errs, err)
		}
		if _, isLog := l.Rule.(SlidingLog); isLog && c.Settings.LeaseFor > 0 {
			errs = append(errs, fault("Settings.LeaseFor", c.Settings.LeaseFor, "want 0 with a SlidingLog: tokens taken ahead would make it inexact"))
		}
	}
	if err := c.Settings.Validate(kindName, "Settings."); err != nil {
		errs = append(errs, err.(interface{ Unwrap() []error }).Unwrap()...)
	}
	return errors.Join(errs...)
}

func (l *Limit) name() string {
	if l.Name == "" {
		return "limit"
	}
	return l.Name
}

// withDefaults returns the effective configuration. c must be valid.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = kindName
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	c.Shards = max(c.Shards, 1)
	c.Limits = append([]Limit(nil), c.Limits...)
	for i := range c.Limits {
		c.Limits[i].Name = c.Limits[i].name()
	}
	return c
}

// New returns the live limit of a configuration. A name that is not empty takes the place of
// cfg.Name. The error joins every fault as a [*policy.ConfigError].
//
// No connection is made: a store that is away is no reason not to start.
func New(name string, cfg Config) (*sharedlimit.Limiter, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	limits := make([]sharedlimit.Limit, len(cfg.Limits))
	for i, l := range cfg.Limits {
		p, _ := l.Rule.plan(cfg.Shards) // valid
		limits[i] = sharedlimit.Limit{Name: l.Name, Rate: p.rate, Burst: p.total, MaxCost: p.burst, KeyOf: l.KeyOf}
		if l.Keyed {
			limits[i].KeyOf = sharedlimit.ByKey
		}
	}
	return sharedlimit.New(kindName, cfg.Name, newStore(cfg), limits, cfg.Settings)
}

// BuildPolicy implements [policy.Policy] with a new limiter. The counts are in the store, so
// pipelines that are given the same Config, in this process or another, share them; what is
// taken ahead and given back they share only if they are given the same live limiter.
func (c Config) BuildPolicy() (policy.Part, error) {
	l, err := New("", c)
	if err != nil {
		return policy.Part{Kind: kindName, Name: c.Name}, err
	}
	return l.BuildPolicy()
}

var _ ratelimit.Limiter = (*sharedlimit.Limiter)(nil)
