package grpcx

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

var errNoFallback = errors.New("grpcx: a fallback answered with nil")

// answer is what an attempt gets that may go on when its caller has left, or that has
// others beside it: a reply and what else the caller has asked for, all its own.
type answer struct {
	reply           any
	header, trailer metadata.MD
	peer            peer.Peer
}

func newAnswer(reply any) *answer {
	if m, ok := reply.(proto.Message); ok {
		return &answer{reply: m.ProtoReflect().New().Interface()}
	}
	return &answer{reply: reflect.New(reflect.TypeOf(reply).Elem()).Interface()}
}

// options replaces, in a list of its own, what writes to the caller's variables.
func (a *answer) options(opts []grpc.CallOption) []grpc.CallOption {
	kept := opts[:0]
	for _, o := range opts {
		switch o.(type) {
		case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption:
		default:
			kept = append(kept, o)
		}
	}
	return append(kept, grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
}

// hand gives the caller what it has asked for; the reply only of an RPC that succeeded.
func (a *answer) hand(reply any, opts []grpc.CallOption, succeeded bool) error {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		}
	}
	if !succeeded {
		return nil
	}
	return assign(reply, a.reply)
}

// assign makes reply equal to v, which is a fallback's or an attempt's own.
func assign(reply, v any) error {
	if v == nil {
		return errNoFallback
	}
	to, from := reflect.ValueOf(reply), reflect.ValueOf(v)
	if to.Type() != from.Type() {
		return fmt.Errorf("grpcx: answered with a %T, where the RPC returns a %T", v, reply)
	}
	if from.IsNil() {
		return errNoFallback
	}
	if m, ok := reply.(proto.Message); ok {
		proto.Reset(m)
		proto.Merge(m, v.(proto.Message)) // it has the type of reply
		return nil
	}
	to.Elem().Set(from.Elem())
	return nil
}

// copyOf returns a copy of a message, which the caller may change as soon as the RPC
// returns. A message of another kind than protobuf's stays the caller's own.
func copyOf(req any) any {
	if m, ok := req.(proto.Message); ok {
		return proto.Clone(m)
	}
	return req
}
