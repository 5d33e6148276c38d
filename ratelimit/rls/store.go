package rls

import (
	"context"
	"fmt"
	"math"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// store asks a rate-limit service.
type store struct {
	conn   grpc.ClientConnInterface
	owned  *grpc.ClientConn // nil when the connection is the caller's
	domain string
	limits []Limit

	client ratelimitv3.RateLimitServiceClient
	health grpc_health_v1.HealthClient
}

var (
	_ sharedlimit.Store = (*store)(nil)
	_ policy.Closer     = (*store)(nil)
)

func (s *store) init() {
	s.client = ratelimitv3.NewRateLimitServiceClient(s.conn)
	s.health = grpc_health_v1.NewHealthClient(s.conn)
}

// Take implements [sharedlimit.Store].
func (s *store) Take(ctx context.Context, r *sharedlimit.Request) (sharedlimit.Grant, error) {
	req := &ratelimitv3.RateLimitRequest{
		Domain:      s.domain,
		Descriptors: make([]*common.RateLimitDescriptor, len(s.limits)),
		HitsAddend:  uint32(min(int64(r.Least), math.MaxUint32)), //nolint:gosec // it fits
	}
	for i := range s.limits {
		req.Descriptors[i] = s.limits[i].descriptor(r.Keys[i])
	}
	resp, err := s.client.ShouldRateLimit(ctx, req)
	if err != nil {
		return sharedlimit.Grant{}, err
	}
	switch resp.GetOverallCode() {
	case ratelimitv3.RateLimitResponse_OK:
		return sharedlimit.Grant{Tokens: r.Least, Expires: expires(resp)}, nil
	case ratelimitv3.RateLimitResponse_OVER_LIMIT:
		g := sharedlimit.Grant{}
		for i, st := range resp.GetStatuses() {
			if st.GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || i >= len(s.limits) {
				continue
			}
			if after := st.GetDurationUntilReset().AsDuration(); after >= g.RetryAfter {
				g.Limit, g.RetryAfter = i, after
			}
		}
		return g, nil
	default:
		return sharedlimit.Grant{}, fmt.Errorf("rls: the service answered with code %v", resp.GetOverallCode())
	}
}

// descriptor returns how the service knows the limit of a key.
func (l *Limit) descriptor(key string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{Entries: make([]*common.RateLimitDescriptor_Entry, 0, len(l.Entries)+1)}
	for _, e := range l.Entries {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	if l.KeyEntry != "" {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: l.KeyEntry, Value: key})
	}
	return d
}

// expires returns when the first window of a call ends: what is given back later is worth
// nothing there. It is 0, at once, when the service does not say.
func expires(resp *ratelimitv3.RateLimitResponse) time.Duration {
	first := time.Duration(0)
	for _, st := range resp.GetStatuses() {
		if st.GetCurrentLimit() == nil {
			continue // the service has no such limit
		}
		if d := st.GetDurationUntilReset().AsDuration(); first == 0 || d < first {
			first = d
		}
	}
	return first
}

// GiveBack implements [sharedlimit.Store]. The protocol has no way to do so.
func (s *store) GiveBack(context.Context, *sharedlimit.Request, int) error { return nil }

// Probe implements [sharedlimit.Store] by the health service of gRPC. A service that has none
// has answered, too.
func (s *store) Probe(ctx context.Context) error {
	if s.owned != nil {
		s.owned.ResetConnectBackoff()
	}
	resp, err := s.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented, status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fmt.Errorf("rls: the service says that it is %v", resp.GetStatus())
	}
	return nil
}

// Close implements [policy.Closer].
func (s *store) Close(context.Context) error {
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}
