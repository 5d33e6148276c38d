package redisx

import (
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
)

// Config configures a [Hook]. The zero value is valid: every field documents what zero means.
// [New] and [Guard] copy it; later changes have no effect.
//
// The functions run on the goroutine of the command, or on that of an attempt beside it, and
// may run concurrently.
type Config struct {
	// Name is the name of the client's connections in snapshots and refusals, unique in the
	// pipeline. Empty means "connections".
	Name string

	// Idempotent says whether a command may reach the server more than once. It is asked
	// about each command of a pipeline, and not about calls that say so themselves
	// (policy.Call.Idempotent). A command that may not is tried again only when the server
	// has certainly not run it. Nil means [ReadOnly].
	Idempotent func(cmd redis.Cmder) bool

	// Blocks says whether a command waits in the server for something to happen. Nil means
	// [Blocking].
	Blocks func(cmd redis.Cmder) bool

	// Classify judges the error of a command. [policy.NotRun] leaves it to [KindOf]. It is
	// not asked about redis.Nil, nor when the caller has given up. Nil judges nothing.
	Classify func(cmd redis.Cmder, err error) policy.Kind

	// ClientRetries leaves retries to go-redis: [Guard] accepts a client with MaxRetries or
	// DialerRetries, and the pipeline makes one attempt of every command, so that the two do
	// not multiply.
	ClientRetries bool
}

const defaultName = "connections"

// withDefaults returns the effective settings.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName
	}
	if c.Idempotent == nil {
		c.Idempotent = ReadOnly
	}
	if c.Blocks == nil {
		c.Blocks = Blocking
	}
	return c
}
