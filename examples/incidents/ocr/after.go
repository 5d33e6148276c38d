package ocr

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

//go:embed breakwater.yaml
var afterYAML []byte

// region after

// after is the client of the vendor behind two pipelines, one for each lane. They share
// the lanes of breakwater.yaml, and with them the quota; each has slots of its own.
type after struct {
	vendor *vendor
	lanes  map[string]*policy.Pipeline
}

// newAfter makes the pipelines from the policies that breakwater.yaml lists for the vendor.
func newAfter(v *vendor, specs []policy.Policy, registry *policy.Registry) (*after, error) {
	lane := map[string][]policy.Policy{}
	for _, spec := range specs {
		lanes, ok := spec.(ratelimit.Lanes)
		if !ok {
			lane["realtime"] = append(lane["realtime"], spec)
			lane["batch"] = append(lane["batch"], spec)
			continue
		}
		set, err := ratelimit.NewLaneSet("", lanes)
		if err != nil {
			return nil, err
		}
		for _, l := range lanes.Lanes {
			lane[l.Name] = append(lane[l.Name], set.Lane(l.Name))
		}
	}
	a := &after{vendor: v, lanes: map[string]*policy.Pipeline{}}
	for name, policies := range lane {
		p, err := registry.New("ocr "+name, append(policies, policy.ClassifyErrors(kindOf))...)
		if err != nil {
			return nil, err
		}
		a.lanes[name] = p
	}
	return a, nil
}

// kindOf says what an error of the vendor means. The retry rules of breakwater.yaml go by it.
func kindOf(err error) policy.Kind {
	switch {
	case errors.Is(err, errQuota):
		return policy.Throttled
	case errors.Is(err, errBusy):
		return policy.Busy
	case errors.Is(err, errMalformed), errors.Is(err, errAuth):
		return policy.Permanent
	}
	return policy.Classify(context.Background(), err).Kind
}

func (a *after) scan(ctx context.Context, lane string, doc document) error {
	return policy.Run(ctx, a.lanes[lane], func(ctx context.Context) error { return a.vendor.scan(ctx, doc) })
}

// refuse answers a request that was refused, and says so in the log.
func refuse(w http.ResponseWriter, logger *slog.Logger, re *policy.RejectedError) {
	_, lane, _ := strings.Cut(re.Dependency, " ")
	seconds, ok := re.RetryAfterSeconds()
	if !ok {
		seconds = 1
	}
	logger.Warn("refused", "lane", lane, "policy", re.Policy, "reason", re.Reason.String())
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
}

// endregion

func (a *after) realtime(ctx context.Context, doc document) error {
	return a.scan(ctx, "realtime", doc)
}

func (a *after) batch(ctx context.Context, doc document) error { return a.scan(ctx, "batch", doc) }
