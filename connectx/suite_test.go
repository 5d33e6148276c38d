package connectx_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/connectx"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
)

// The suite that every adapter passes, on both sides and for both kinds of RPC.
func TestConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for _, side := range []string{"client", "server"} {
		for _, kind := range []string{"unary", "stream"} {
			for _, name := range []string{"connect", "grpc"} {
				t.Run(side+" "+kind+" "+name, func(t *testing.T) {
					conformance.Run(t, adapter(side, kind, protocols()[name]))
				})
			}
		}
	}
}

func adapter(side, kind string, opts []connect.ClientOption) conformance.Adapter {
	a := conformance.Adapter{
		Check: func(t *testing.T, c conformance.Case, err error) bool { t.Helper(); return checkCode(t, side, c, err) },
		Skip:  map[conformance.Case]string{}, Figures: map[conformance.Case]conformance.Figures{},
	}
	if side == "server" {
		a.Skip[conformance.Gone] = "a server that is gone counts nothing"
	}
	if kind == "unary" {
		a.Skip[conformance.Abandoned] = "a message arrives whole or not at all"
		a.Pool = side == "client"
	} else {
		a.Figures[conformance.Slow] = conformance.Figures{Calls: 1} // how long a stream lives says nothing
		a.Figures[conformance.Canceled] = conformance.Figures{Calls: 1}
	}
	a.Start = func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
		t.Helper()
		var server, client connect.Interceptor = connectx.NewServer(nil, connectx.ServerConfig{}), connectx.NewClient(p, connectx.ClientConfig{})
		if side == "server" {
			server, client = connectx.NewServer(p, connectx.ServerConfig{}), nil
		}
		w := start(t, service{get: serveGet(c), watch: serveWatch(c)}, server, client, opts...)
		if c == conformance.Gone {
			w.server.Close()
		}
		if kind == "unary" {
			return func(ctx context.Context) error { _, err := w.stock(ctx); return err }, w.close
		}
		return func(ctx context.Context) error { return w.follow(ctx, c) }, w.close
	}
	return a
}

// follow reads a stream.
func (w *world) follow(ctx context.Context, c conformance.Case) error {
	s := w.watch.CallBidiStream(ctx)
	if err := s.Send(wrapperspb.String("apples")); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseRequest(); err != nil {
		return err
	}
	if c == conformance.Abandoned {
		_, err := s.Receive()
		return err // and nobody closes it: its context ends
	}
	for {
		if _, err := s.Receive(); err != nil {
			_ = s.CloseResponse()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func serveGet(c conformance.Case) getFunc {
	return func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
		if err := farEnd(ctx, c); err != nil {
			return nil, err
		}
		return connect.NewResponse(wrapperspb.String("12")), nil
	}
}

func serveWatch(c conformance.Case) watchFunc {
	return func(ctx context.Context, s *connect.BidiStream[text, text]) error {
		if err := s.Send(wrapperspb.String("12")); err != nil {
			return err
		}
		return farEnd(ctx, c)
	}
}

// farEnd is the handler of a case.
func farEnd(ctx context.Context, c conformance.Case) error {
	switch c {
	case conformance.Slow:
		time.Sleep(conformance.Slowness)
	case conformance.Canceled, conformance.Deadline, conformance.Abandoned:
		<-ctx.Done()
		return ctx.Err()
	case conformance.Panic:
		panic("boom")
	case conformance.Failure:
		return connect.NewError(connect.CodeInternal, errors.New("boom"))
	case conformance.Success, conformance.Refused, conformance.Gone:
	}
	return nil
}

// checkCode checks what reaches a caller as a code and not as an error of Go.
func checkCode(t *testing.T, side string, c conformance.Case, err error) bool {
	t.Helper()
	want := map[conformance.Case]connect.Code{
		conformance.Canceled: connect.CodeCanceled, conformance.Deadline: connect.CodeDeadlineExceeded, conformance.Refused: connect.CodeUnavailable,
	}
	code, known := want[c]
	if known {
		require.Equal(t, code, connect.CodeOf(err), "%v", err)
		require.Equal(t, c == conformance.Refused && side == "client", errors.Is(err, policy.ErrRejected), "%v", err)
	}
	return known
}
