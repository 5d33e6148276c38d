package redisconfig

import (
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// Settings are those of a policy of the kind redis: what [redislimit.Config] has, as a file
// can say it.
type Settings struct {
	// Name is the instance name, and part of the keys. Empty means "redis".
	Name string

	// Client is the name of a client that the program has handed over. Empty means the
	// only one there is.
	Client string

	// Prefix is what all keys begin with: limits of the same Prefix and Name are one.
	// Empty means "breakwater:" and the name of the dependency, so that those of other
	// dependencies are others.
	Prefix string

	// Limits are the limits that a call must keep, from 1 to 8: all or nothing. Their
	// names must differ.
	Limits []Limit

	// Shards divides each limit into so many, from 1 to 1024, which lie in slots of
	// their own: for a key so hot that one server is too slow for it. Zero means 1.
	Shards int

	// Settings say how long the store may take, what is done while it cannot be asked,
	// how the limit is divided among processes, and whether tokens are taken ahead.
	Settings sharedlimit.Settings
}

// Limit is one of the limits that a call must keep.
type Limit struct {
	// Name is the name of the limit: part of its keys, and what a refusal says when
	// there are several. Empty means "limit", which only one can have.
	Name string

	// Rule is how it counts. Zero is token_bucket.
	Rule Rule

	// Rate is the number of tokens per time of a token_bucket. It has no default, and
	// belongs to no other rule.
	Rate ratelimit.Rate

	// Burst is the number of tokens that a token_bucket can hold. Zero means what arrives
	// in one second, rounded up.
	Burst int

	// Limit is the number of tokens in a window, for the other rules. It has no default.
	Limit int

	// Window is the length of a window, for the other rules, at least 1ms. It has no
	// default.
	Window time.Duration

	// Keyed gives each key of the calls a limit of its own. False means one for all
	// calls.
	Keyed bool
}

// Rule is how a limit counts.
type Rule uint8

// The rules.
const (
	TokenBucket   Rule = iota // [redislimit.TokenBucket], of Rate and Burst
	FixedWindow               // [redislimit.FixedWindow], of Limit and Window
	SlidingWindow             // [redislimit.SlidingWindow], of Limit and Window
	SlidingLog                // [redislimit.SlidingLog], of Limit and Window

	numRules
)

var ruleNames = [numRules]string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"}

// String returns the rule's name as a file has it.
func (r Rule) String() string {
	if r < numRules {
		return ruleNames[r]
	}
	return "unknown"
}

// rule returns the limit as redislimit has it.
func (l Limit) rule() redislimit.Rule {
	switch l.Rule {
	case FixedWindow:
		return redislimit.FixedWindow{Limit: l.Limit, Window: l.Window}
	case SlidingWindow:
		return redislimit.SlidingWindow{Limit: l.Limit, Window: l.Window}
	case SlidingLog:
		return redislimit.SlidingLog{Limit: l.Limit, Window: l.Window}
	default:
		return redislimit.TokenBucket{Rate: l.Rate, Burst: l.Burst}
	}
}
