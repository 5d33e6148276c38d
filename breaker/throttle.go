package breaker

import (
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// throttleKind is the kind of policy, and the name of a throttle that is given none.
const throttleKind = "throttle"

const (
	defaultK            = 2
	maxK                = 1000
	defaultMaxRejection = 0.9
)

// Throttle configures a [Throttler]: client-side throttling after the SRE book,
// "Handling Overload". The zero value is valid. It can be handed to [policy.New] as it
// is; each pipeline then gets a throttle of its own.
//
// A throttle refuses calls by chance, with a probability that follows from what the
// dependency has accepted of late:
//
//	max(0, (requests - K × accepts) / (requests + 1))
//
// A breaker is open or closed; a throttle finds the share of the load that the
// dependency can bear and keeps to it. So it suits one that sheds load, or enforces a
// quota, better than one that is down.
//
// A request is a call that this throttle refused, or that ended. It was accepted when
// it ended as [policy.Success] or [policy.Permanent]. Failures, timeouts, busy and
// throttled answers were not accepted: unlike a breaker, a throttle is meant for
// answers such as HTTP 429. Calls that the caller cancelled count as nothing.
type Throttle struct {
	// Name is the instance name, unique in a pipeline and the policy label
	// everywhere. Empty means "throttle".
	Name string

	// K is the number of requests that are let through for each that is accepted,
	// from 1 to 1000. The dependency gets K times what it accepts, so with 2 half of
	// its work is refusals when it is overloaded; in return a recovery is noticed at
	// once. With 1.1 it gets hardly more than it accepts, and recovers slowly. Calls
	// are refused when less than 1/K of the requests are accepted. Zero means 2.
	//
	// It is the factor of [policy.PriorityNormal]. What exceeds 1 in it is halved for
	// [policy.PriorityLow], doubled for [policy.PriorityHigh] and doubled again for
	// [policy.PriorityCritical]: with 2, calls of low priority are refused when less
	// than 67 % of the requests are accepted, normal ones below 50 %, high ones below
	// 33 % and critical ones below 20 %.
	K float64

	// Window is the time over which requests are counted, at least 1ms. Zero means
	// 10s; the SRE book uses 2m.
	Window time.Duration

	// Buckets is the number of steps in which the window slides, from 1 to 1000.
	// Zero means 10.
	Buckets int

	// MinCalls is the number of requests the window must hold before any is refused.
	// Zero means 20; with 1 the formula stands alone, and a first call that fails has
	// every other one refused.
	MinCalls int

	// MaxRejection is the largest probability of a refusal, in (0, 1]. What is left
	// is let through whatever happens, so that a recovery is noticed. Zero means
	// 0.9.
	MaxRejection float64

	// IgnoreRefusals leaves refused calls out of the requests. As published, they
	// are in: then the dependency gets K times what it accepts, and a recovery takes
	// a few windows. Left out, calls are let through again within moments of a
	// recovery, and so they are when there was none: the load swings.
	IgnoreRefusals bool

	// Shadow makes the throttle watch only: it decides, its decisions are counted
	// and reported, and every call runs. Outcomes of calls it would have refused
	// are ignored.
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Throttle) Validate() error {
	f := faults{kind: throttleKind}
	if !(c.K == 0 || c.K >= 1 && c.K <= maxK) { // written so that NaN fails
		f.add("K", c.K, "want from 1 to 1000 (0 means 2)")
	}
	f.duration("Window", c.Window, "10s")
	f.between("Buckets", c.Buckets, maxBuckets, "10")
	f.notNegative("MinCalls", c.MinCalls, "20")
	if !(c.MaxRejection >= 0 && c.MaxRejection <= 1) {
		f.add("MaxRejection", c.MaxRejection, "want above 0 and at most 1 (0 means 0.9)")
	}
	return errors.Join(f.errs...)
}

// effective returns c with every default filled in.
func (c Throttle) effective() Throttle {
	c.Name = orDefault(c.Name, throttleKind)
	c.K = orDefault(c.K, defaultK)
	c.Window = orDefault(c.Window, defaultWindow)
	c.Buckets = orDefault(c.Buckets, defaultBuckets)
	c.MinCalls = orDefault(c.MinCalls, defaultMinCalls)
	c.MaxRejection = orDefault(c.MaxRejection, defaultMaxRejection)
	return c
}

// warnings returns what is likely to surprise in an effective Throttle.
func (c Throttle) warnings() []string {
	var ws []string
	if c.MaxRejection == 1 && !c.IgnoreRefusals {
		ws = append(ws, "with MaxRejection 1 an outage as long as Window leaves so few calls through that a recovery takes minutes to be noticed; keep it below 1")
	}
	if c.MinCalls == 1 {
		ws = append(ws, "with MinCalls 1 a single failed call has others refused; raise it")
	}
	return ws
}

// BuildPolicy implements [policy.Policy]: every pipeline that is given the Throttle
// gets one of its own. To share one, hand over a [*Throttler].
func (c Throttle) BuildPolicy() (policy.Part, error) {
	t, err := NewThrottle(c.Name, c)
	if err != nil {
		return policy.Part{Kind: throttleKind, Name: c.Name}, err
	}
	return t.BuildPolicy()
}
