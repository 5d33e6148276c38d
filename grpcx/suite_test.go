package grpcx_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/grpcx"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
)

// The suite that every adapter passes, on both sides and for both kinds of RPC. What only
// gRPC has, such as statuses and streams that fail half-way, is in the tables beside it.
func TestConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for _, side := range []string{"client", "server"} {
		for _, kind := range []string{"unary", "stream"} {
			t.Run(side+" "+kind, func(t *testing.T) {
				conformance.Run(t, adapter(side, kind))
			})
		}
	}
}

func adapter(side, kind string) conformance.Adapter {
	a := conformance.Adapter{Check: checkStatus, Skip: map[conformance.Case]string{}, Figures: map[conformance.Case]conformance.Figures{}}
	if side == "server" {
		a.Skip[conformance.Gone] = "a server that is gone counts nothing"
	}
	if kind == "unary" {
		a.Skip[conformance.Abandoned] = "a message arrives whole or not at all"
		if side == "client" {
			a.Pool = true
		}
	} else {
		a.Figures[conformance.Slow] = conformance.Figures{Calls: 1} // how long a stream lives says nothing
		// The client hears of the headers, which settle the stream.
		a.Figures[conformance.Canceled] = conformance.Figures{Calls: 1}
	}
	a.Start = func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
		t.Helper()
		svc := &service{
			unary: func(ctx context.Context) error { return farEnd(ctx, c, nil) },
			duplex: func(s duplexServer) error {
				send := func() error { return s.Send(&pb.StreamingOutputCallResponse{}) }
				return farEnd(s.Context(), c, send)
			},
		}
		server, client := pipe(t, "other"), p
		if side == "server" {
			server, client = p, pipe(t, "other")
		}
		w, stop := start(t, svc, grpcx.NewServer(server, grpcx.ServerConfig{}).ServerOptions(),
			grpcx.NewClient(client, grpcx.ClientConfig{}).DialOptions()...)
		if c == conformance.Gone {
			w.server.Stop()
		}
		if kind == "unary" {
			return func(ctx context.Context) error {
				_, err := w.UnaryCall(ctx, &pb.SimpleRequest{})
				return err
			}, stop
		}
		return func(ctx context.Context) error {
			s, err := w.FullDuplexCall(ctx)
			if err != nil {
				return err
			}
			if c == conformance.Abandoned {
				_, err = s.Recv()
				return err
			}
			require.NoError(t, s.CloseSend())
			for err == nil {
				_, err = s.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}, stop
	}
	return a
}

// farEnd is the handler of a case; send, if not nil, sends one message.
func farEnd(ctx context.Context, c conformance.Case, send func() error) error {
	if send != nil {
		if err := send(); err != nil {
			return err
		}
	}
	switch c {
	case conformance.Slow:
		time.Sleep(conformance.Slowness)
	case conformance.Canceled, conformance.Deadline, conformance.Abandoned:
		<-ctx.Done()
		return ctx.Err()
	case conformance.Panic:
		panic("boom")
	case conformance.Failure:
		return status.Error(codes.Internal, "boom")
	case conformance.Success, conformance.Refused, conformance.Gone:
	}
	return nil
}

// checkStatus checks what reaches a caller as a status and not as an error of Go.
func checkStatus(t *testing.T, c conformance.Case, err error) bool {
	t.Helper()
	want := map[conformance.Case]codes.Code{
		conformance.Canceled: codes.Canceled, conformance.Deadline: codes.DeadlineExceeded, conformance.Refused: codes.Unavailable,
	}
	code, known := want[c]
	if known {
		require.Equal(t, code, status.Code(err), "%v", err)
	}
	return known
}
