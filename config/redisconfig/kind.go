package redisconfig

import (
	_ "embed" // for the descriptions
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/config/internal/near"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// kindName is what metrics and errors call these policies.
const kindName = "redis"

// defaultTimeout is what a Timeout of zero means.
const defaultTimeout = 50 * time.Millisecond

//go:embed descriptions.json
var descriptions []byte

// Kind returns the kind redis, for the Kinds of a [config.Program]. Its policies are
// [redislimit.Config] with one of the clients, by their names; make them with
// [redislimit.NewClient]. They stay the caller's, and must live for as long as the
// pipelines do.
//
// Nil clients are for tools that look at a file without the program it belongs to: names of
// clients are then taken as they are, and no pipeline can be made of the policies.
func Kind(clients map[string]redis.UniversalClient) config.Kind {
	clients = maps.Clone(clients)
	about := map[string]string{}
	_ = json.Unmarshal(descriptions, &about) // a test reads it
	return config.Kind{
		Name:     kindName,
		Settings: Settings{},
		Make: func(dependency string, settings any) (policy.Policy, error) {
			s, ok := settings.(Settings)
			if !ok {
				return nil, fmt.Errorf("redisconfig: these are no Settings: %T", settings)
			}
			return s.policy(dependency, clients)
		},
		About: func(settings any) config.About {
			s, _ := settings.(Settings)
			return s.about()
		},
		Descriptions: about,
	}
}

// policy makes the policy that the settings describe.
func (s Settings) policy(dependency string, clients map[string]redis.UniversalClient) (policy.Policy, error) {
	cfg := redislimit.Config{Name: s.Name, Prefix: s.Prefix, Shards: s.Shards, Settings: s.Settings}
	if cfg.Prefix == "" {
		cfg.Prefix = "breakwater:" + strings.NewReplacer("{", "_", "}", "_").Replace(dependency)
	}
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kindName, Field: field, Value: value, Want: want})
	}
	for i, l := range s.Limits {
		cfg.Limits = append(cfg.Limits, redislimit.Limit{Name: l.Name, Rule: l.rule(), Keyed: l.Keyed})
		at := fmt.Sprintf("Limits[%d].", i)
		const other = "want none: it belongs to "
		switch {
		case l.Rule == TokenBucket && l.Limit != 0:
			fail(at+"Limit", l.Limit, other+"a Rule with a window, such as fixed_window")
		case l.Rule == TokenBucket && l.Window != 0:
			fail(at+"Window", l.Window, other+"a Rule with a window, such as fixed_window")
		case l.Rule != TokenBucket && l.Rate.Per != 0:
			fail(at+"Rate", l.Rate, other+"the Rule token_bucket")
		case l.Rule != TokenBucket && l.Burst != 0:
			fail(at+"Burst", l.Burst, other+"the Rule token_bucket")
		}
	}
	client, err := s.client(clients)
	errs = append(errs, err)
	cfg.Client = client
	for _, err := range flatten(cfg.Validate()) {
		ce, ok := errors.AsType[*policy.ConfigError](err)
		switch {
		case !ok:
			errs = append(errs, err)
		case ce.Field == "Client" && client == nil: // said already, or a tool's
		default:
			fail(strings.Replace(ce.Field, ".Rule.", ".", 1), ce.Value, ce.Want)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if clients == nil {
		return unbound{cfg}, nil
	}
	return cfg, nil
}

// client returns the client that is named.
func (s Settings) client(clients map[string]redis.UniversalClient) (redis.UniversalClient, error) {
	if clients == nil {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(clients))
	name := s.Client
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if c := clients[name]; c != nil {
		return c, nil
	}
	fault := &policy.ConfigError{Policy: kindName, Field: "Client"}
	switch {
	case len(names) == 0:
		fault.Want = "the program has handed over no clients"
	case name == "":
		fault.Want = "want the name of a client: one of " + strings.Join(names, ", ")
	default:
		fault.Want = near.Unknown("client", name, names)
	}
	return nil, fault
}

func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, e := range joined.Unwrap() {
			list = append(list, flatten(e)...)
		}
		return list
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// unbound is a policy without a client.
type unbound struct{ redislimit.Config }

// BuildPolicy implements [policy.Policy]: it cannot be built.
func (u unbound) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: kindName, Name: u.Name}, &policy.ConfigError{Policy: kindName, Field: "Client", Want: "want the clients of the program: they were not handed over"}
}

// about returns what lint is to know: of a limit that several processes have together, the
// share of this one, where their number is stated.
func (s Settings) about() config.About {
	nodes := max(s.Settings.Nodes, 1)
	a := config.About{
		MaxWait: s.Settings.MaxWait, MaxWaiters: s.Settings.MaxWaiters,
		Timeout: s.Settings.Timeout, NoStandIn: s.Settings.StandIn == sharedlimit.Refuse,
		Within: "Settings",
	}
	if a.Timeout == 0 {
		a.Timeout = defaultTimeout
	}
	if s.Settings.LocalOnly { // no call asks the store
		a.Timeout = 0
	}
	share := func(n float64) int { return int(math.Ceil(min(n, math.MaxInt32) / float64(nodes))) }
	for i, l := range s.Limits {
		about := config.AboutLimit{Path: fmt.Sprintf("Limits[%d]", i), Keyed: l.Keyed, Field: "Limit"}
		switch {
		case l.Rule == TokenBucket && l.Rate.Per > 0:
			about.PerSecond, about.Field, about.Bucket = l.Rate.Tokens/l.Rate.Per.Seconds(), "Burst", true
			about.Burst = share(float64(l.Burst))
			if l.Burst == 0 {
				about.Burst = share(math.Ceil(about.PerSecond))
			}
		case l.Rule != TokenBucket && l.Window > 0:
			about.PerSecond, about.Burst = float64(l.Limit)/l.Window.Seconds(), share(float64(l.Limit))
		}
		about.PerSecond /= float64(nodes)
		a.Limits = append(a.Limits, about)
	}
	return a
}
