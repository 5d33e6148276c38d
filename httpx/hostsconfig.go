package httpx

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	defaultHostsPrefix = "host:"
	defaultMaxHosts    = 100
	defaultIdleAfter   = 10 * time.Minute

	// otherHosts is what the pipeline is called that the rest shares. No host has this
	// name: the one that is called so gets into the rest.
	otherHosts = "other"
)

// HostsConfig configures [Hosts]. Its zero value is valid, and makes pipelines without any
// policy.
type HostsConfig struct {
	// Policies are those of each host's pipeline. They are configurations: a live
	// policy would be one for all hosts. NewHosts copies the list.
	Policies []policy.Policy

	// Prefix is what the names of the pipelines begin with; the host follows, with the
	// port if it is not that of the scheme. Empty means "host:".
	Prefix string

	// MaxHosts is the largest number of hosts that have a pipeline of their own at the
	// same time. All others share one, called Prefix + "other". Zero means 100; views
	// show as many derived pipelines by name by default.
	MaxHosts int

	// IdleAfter is the time without a request after which a host's pipeline is removed,
	// give or take half of it; one that a command holds, that is open, or that has calls
	// in flight stays. Zero means 10m, negative that none is removed.
	IdleAfter time.Duration

	// Accept says whether a host may have a pipeline of its own: set it where users or
	// redirects choose hosts, who could otherwise use up MaxHosts. It runs on the
	// goroutine of a request to a host that has none, concurrently. Nil accepts every
	// host.
	Accept func(host string) bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join]. What is wrong with Policies is reported by [NewHosts].
func (c HostsConfig) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: "hosts", Field: field, Value: value, Want: want})
	}
	if c.MaxHosts < 0 {
		fault("MaxHosts", c.MaxHosts, "want at least 1, or 0 (100)")
	}
	if c.IdleAfter > 0 && c.IdleAfter < time.Millisecond {
		fault("IdleAfter", c.IdleAfter, "want at least 1ms, 0 (10m), or a negative duration (never); a number alone is nanoseconds")
	}
	for _, p := range c.Policies {
		if _, live := p.(policy.Closer); live {
			fault("Policies", fmt.Sprintf("%T", p), "want configurations: a live policy is closed with the first pipeline that is removed")
		}
	}
	return errors.Join(errs...)
}

// withDefaults returns what a valid c means.
func (c HostsConfig) withDefaults() HostsConfig {
	if c.Prefix == "" {
		c.Prefix = defaultHostsPrefix
	}
	if c.MaxHosts == 0 {
		c.MaxHosts = defaultMaxHosts
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = defaultIdleAfter
	}
	c.Policies = slices.Clone(c.Policies)
	return c
}
