package rls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// kindName is the kind of these policies, and their default instance name.
const kindName = "rls"

// maxTokens is the largest burst: 2^53-1, or what an int holds.
const maxTokens = math.MaxInt >> (10 * (math.MaxInt >> 62))

// Config configures a limit that a rate-limit service keeps; it is handed to [policy.New] as
// it is, or to [New] for a live limiter. Domain and Limits are required, and one of Conn and
// Target. New copies the Config; later changes have no effect.
type Config struct {
	// Name is the instance name, the policy label everywhere. Empty means "rls".
	Name string

	// Conn is the connection to use, which stays the caller's.
	Conn grpc.ClientConnInterface

	// Target is the address of the service, such as dns:///ratelimit:8081, in place of
	// Conn: of a connection that belongs to the limit and is closed with it. Empty means
	// that there is a Conn.
	Target string

	// DialOptions are those of the connection to Target; the transport credentials have to
	// be among them. Nil means none.
	DialOptions []grpc.DialOption

	// Domain is the domain that the limits of the service are configured in. It has no
	// default.
	Domain string

	// Limits are the limits that a call must keep, at least one: each is one descriptor of
	// the one question that is asked for a call. Their names must differ.
	//
	// The service decides whether one that refuses keeps the others from counting the
	// call. The reference service counts it with all of them, and counts calls that it
	// refuses.
	Limits []Limit

	// Settings say how long the service may take, and what is done while it cannot be
	// asked. Nodes should be set, as the service does not count processes. LeaseFor must
	// be 0: the protocol has no way to give back.
	Settings sharedlimit.Settings
}

// Entry is a part of a descriptor.
type Entry struct{ Key, Value string }

// Limit is one of the limits that a call must keep.
type Limit struct {
	// Name is what a refusal says when there are several limits. Empty means "limit",
	// which only one can have.
	Name string

	// Entries are what the descriptor begins with.
	Entries []Entry

	// KeyEntry is the key of a last entry, whose value is what the call is counted by.
	// Empty means that there is none.
	KeyEntry string

	// KeyOf returns what a call is counted by. It runs on the calling goroutine and may
	// run concurrently. Nil means the key of the call ([policy.Call] Key). It needs
	// KeyEntry.
	KeyOf func(ctx context.Context, c *policy.Call) string

	// Rate and Burst are what the service was told, for the local share. Rate has no
	// default; a Burst of zero means what arrives in one second, rounded up. No call may
	// cost more than Burst.
	Rate  ratelimit.Rate
	Burst int
}

func fault(field string, value any, format string, args ...any) error {
	return &policy.ConfigError{Policy: kindName, Field: field, Value: value, Want: fmt.Sprintf(format, args...)}
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	switch {
	case c.Conn == nil && c.Target == "":
		errs = append(errs, fault("Conn", nil, "want a connection, or a Target"))
	case c.Conn != nil && c.Target != "":
		errs = append(errs, fault("Target", c.Target, "want none beside a Conn"))
	case c.Conn != nil && len(c.DialOptions) > 0:
		errs = append(errs, fault("DialOptions", nil, "want none beside a Conn: they are for a Target"))
	}
	if c.Domain == "" {
		errs = append(errs, fault("Domain", nil, "want the domain of the limits"))
	}
	if len(c.Limits) == 0 {
		errs = append(errs, fault("Limits", nil, "want at least one limit"))
	}
	seen := map[string]bool{}
	for i, l := range c.Limits {
		errs = append(errs, l.faults(fmt.Sprintf("Limits[%d].", i), seen)...)
	}
	if c.Settings.LeaseFor != 0 {
		errs = append(errs, fault("Settings.LeaseFor", c.Settings.LeaseFor, "want 0: the service takes nothing back"))
	}
	if c.Settings.LocalOnly && c.Settings.Nodes == 0 {
		errs = append(errs, fault("Settings.Nodes", 0, "want the number of processes with LocalOnly: the service does not count them"))
	}
	if err := c.Settings.Validate(kindName, "Settings."); err != nil {
		errs = append(errs, err.(interface{ Unwrap() []error }).Unwrap()...)
	}
	return errors.Join(errs...)
}

func (l *Limit) faults(prefix string, seen map[string]bool) (errs []error) {
	if seen[l.name()] {
		errs = append(errs, fault(prefix+"Name", l.name(), "want another name: an earlier limit has it"))
	}
	seen[l.name()] = true
	if len(l.Entries) == 0 && l.KeyEntry == "" {
		errs = append(errs, fault(prefix+"Entries", nil, "want at least one entry, or a KeyEntry"))
	}
	for i, e := range l.Entries {
		if e.Key == "" {
			errs = append(errs, fault(fmt.Sprintf("%sEntries[%d].Key", prefix, i), nil, "want a key"))
		}
	}
	if l.KeyOf != nil && l.KeyEntry == "" {
		errs = append(errs, fault(prefix+"KeyOf", nil, "want none without a KeyEntry, under which the service is told the key"))
	}
	if !(l.Rate.Tokens > 0 && !math.IsInf(l.Rate.Tokens, 1)) { // written so that NaN fails
		errs = append(errs, fault(prefix+"Rate.Tokens", l.Rate.Tokens, "want a finite number above 0"))
	}
	if l.Rate.Per <= 0 {
		errs = append(errs, fault(prefix+"Rate.Per", l.Rate.Per, "want a duration above 0, such as 1s"))
	}
	if l.Burst < 0 || l.Burst > maxTokens {
		errs = append(errs, fault(prefix+"Burst", l.Burst, "want 1 to %d, or 0 (what arrives in a second)", maxTokens))
	}
	return errs
}

func (l *Limit) name() string {
	if l.Name == "" {
		return "limit"
	}
	return l.Name
}

// burst returns the effective burst. The rate must be valid.
func (l *Limit) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return int(min(max(math.Ceil(l.Rate.Tokens/l.Rate.Per.Seconds()*(1-1e-12)), 1), maxTokens))
}

// New returns the live limit of a configuration. A name that is not empty takes the place of
// cfg.Name. The error joins every fault as a [*policy.ConfigError], or is that of Target.
//
// No connection is waited for: a service that is away is no reason not to start.
func New(name string, cfg Config) (*sharedlimit.Limiter, error) {
	if name != "" {
		cfg.Name = name
	}
	if cfg.Name == "" {
		cfg.Name = kindName
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Limits = append([]Limit(nil), cfg.Limits...)
	limits := make([]sharedlimit.Limit, len(cfg.Limits))
	for i, l := range cfg.Limits {
		limits[i] = sharedlimit.Limit{Name: l.name(), Rate: l.Rate, Burst: l.burst(), MaxCost: int(min(int64(math.MaxUint32), math.MaxInt))}
		if l.KeyEntry != "" {
			if limits[i].KeyOf = l.KeyOf; l.KeyOf == nil {
				limits[i].KeyOf = sharedlimit.ByKey
			}
		}
	}
	s := &store{conn: cfg.Conn, domain: cfg.Domain, limits: cfg.Limits}
	if cfg.Target != "" {
		// By default gRPC waits for up to two minutes between two tries.
		params := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second}
		conn, err := grpc.NewClient(cfg.Target, append([]grpc.DialOption{grpc.WithConnectParams(params)}, cfg.DialOptions...)...)
		if err != nil {
			return nil, errors.Join(fault("Target", cfg.Target, "want an address that can be dialed: %v", err))
		}
		s.conn, s.owned = conn, conn
	}
	s.init()
	l, err := sharedlimit.New(kindName, cfg.Name, s, limits, cfg.Settings)
	if err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return l, nil
}

// BuildPolicy implements [policy.Policy] with a new limiter. The counts are in the service, so
// pipelines that are given the same Config share them.
func (c Config) BuildPolicy() (policy.Part, error) {
	l, err := New("", c)
	if err != nil {
		return policy.Part{Kind: kindName, Name: c.Name}, err
	}
	return l.BuildPolicy()
}
