package grpcx

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// marked returns a context whose RPC says what an attempt is. Marks that are there already
// came from somewhere else, with a request that is passed on: whoever trusts us must not
// read them as ours.
func marked(ctx context.Context, at *policy.Attempt) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	// A hedge counts as a retry: the layers below need not try again what is tried
	// twice already.
	previous := hop.FormatPrevious(policy.HopFrom(ctx).Next(at.Number() + at.Hedge()))
	priority := hop.FormatPriority(at.Call().Priority)
	if previous == "" && priority == "" && len(md[hop.AttemptsKey])+len(md[hop.PriorityKey]) == 0 {
		return ctx
	}
	if md == nil {
		md = make(metadata.MD, 2)
	}
	put(md, hop.AttemptsKey, previous)
	put(md, hop.PriorityKey, priority)
	return metadata.NewOutgoingContext(ctx, md)
}

func put(md metadata.MD, key, value string) {
	if value == "" {
		delete(md, key)
		return
	}
	md[key] = []string{value}
}

// read returns the context of an RPC that is trusted, from what its metadata says.
func read(ctx context.Context) (context.Context, *policy.Hop) {
	return rpc.Known(ctx, metadata.ValueFromIncomingContext(ctx, hop.AttemptsKey),
		metadata.ValueFromIncomingContext(ctx, hop.PriorityKey))
}

// TrustNetworks returns a [ServerConfig] Trust that accepts RPCs whose connection comes from
// one of the networks. It goes by the address of the connection and never by metadata, so
// behind a proxy it sees the proxy.
func TrustNetworks(networks ...netip.Prefix) func(ctx context.Context) bool {
	list := make([]netip.Prefix, len(networks))
	copy(list, networks)
	return func(ctx context.Context) bool {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return false
		}
		from, err := netip.ParseAddrPort(p.Addr.String())
		if err != nil {
			return false
		}
		addr := from.Addr().Unmap().WithZone("")
		for _, n := range list {
			if n.Contains(addr) {
				return true
			}
		}
		return false
	}
}
