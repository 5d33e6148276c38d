package grpcx_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/grpcx"
	"github.com/breakwater-go/breakwater/policy"
)

// Everything that can become of a unary RPC, on both sides: after each, no permit is taken,
// no goroutine is left (a bubble does not end otherwise) and the breakers have counted right.
func TestConformanceUnary(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		unary  func(ctx context.Context) error
		gone   bool          // the server has stopped
		full   bool          // the client's bulkhead has no permit left
		cancel time.Duration // the caller cancels after
		limit  time.Duration // the caller's deadline
		code   codes.Code
		client figures
		server figures
	}{
		{name: "success", client: figures{calls: 1}, server: figures{calls: 1}},
		{
			name: "failure", code: codes.Internal, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			unary: func(context.Context) error { return status.Error(codes.Internal, "boom") },
		},
		{
			name: "an error without a status", code: codes.Unknown, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			unary: func(context.Context) error { return errors.New("boom") },
		},
		{
			name: "not found", code: codes.NotFound, client: figures{calls: 1}, server: figures{calls: 1},
			unary: func(context.Context) error { return status.Error(codes.NotFound, "no such thing") },
		},
		{
			name: "busy", code: codes.Unavailable, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			unary: func(context.Context) error { return status.Error(codes.Unavailable, "later") },
		},
		{
			name: "throttled", code: codes.ResourceExhausted,
			unary: func(context.Context) error { return status.Error(codes.ResourceExhausted, "too many") },
		},
		{
			name: "slow", client: figures{calls: 1, slow: 1}, server: figures{calls: 1, slow: 1},
			unary: func(context.Context) error { time.Sleep(2 * time.Second); return nil },
		},
		{name: "refused", full: true, code: codes.Unavailable},
		{
			name: "canceled", cancel: time.Millisecond, code: codes.Canceled,
			unary: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		},
		{
			name: "deadline", limit: 10 * time.Millisecond, code: codes.DeadlineExceeded,
			client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			unary: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		},
		{
			name: "panic", code: codes.Internal, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			unary: func(context.Context) error { panic("boom") },
		},
		{name: "server gone", gone: true, code: codes.Unavailable, client: figures{calls: 1, failures: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, in := guarded(t, "out"), guarded(t, "in")
				w, stop := start(t, &service{unary: tt.unary}, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(),
					grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
				defer stop()
				if tt.gone {
					w.server.Stop()
				}
				if tt.full {
					for range 2 {
						h, err := out.Enter(t.Context())
						require.NoError(t, err)
						defer h.Release()
					}
				}
				ctx := t.Context()
				if tt.cancel > 0 {
					c, cancel := context.WithCancel(ctx)
					time.AfterFunc(tt.cancel, cancel)
					ctx = c
				}
				if tt.limit > 0 {
					c, cancel := context.WithTimeout(ctx, tt.limit)
					defer cancel()
					ctx = c
				}
				_, err := w.UnaryCall(ctx, &pb.SimpleRequest{})
				assert.Equal(t, tt.code, status.Code(err), "%v", err)
				assert.Equal(t, tt.full, errors.Is(err, policy.ErrRejected), "%v", err)
				synctest.Wait()
				if !tt.full {
					assert.Zero(t, inFlight(out), "client's permits")
				}
				assert.Zero(t, inFlight(in), "server's permits")
				assert.Equal(t, tt.client, figuresOf(out), "client's breaker")
				assert.Equal(t, tt.server, figuresOf(in), "server's breaker")
			})
		})
	}
}

// What a stream's caller does after it has opened it.
func readAll(t *testing.T, s grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse], _ context.CancelFunc) error {
	t.Helper()
	require.NoError(t, s.CloseSend())
	for {
		if _, err := s.Recv(); err != nil {
			if err == io.EOF { //nolint:errorlint // a stream's end is bare
				return nil
			}
			return err
		}
	}
}

// The same for streams. The permit is kept until the stream has ended, however it does.
func TestConformanceStream(t *testing.T) {
	t.Parallel()
	type client = grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	send := func(s duplexServer, n int) error {
		for range n {
			if err := s.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
		return nil
	}
	forever := func(s duplexServer) error {
		if err := send(s, 1); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}
	tests := []struct {
		name   string
		duplex func(s duplexServer) error
		use    func(t *testing.T, w *world, s client, cancel context.CancelFunc) error
		limit  time.Duration
		code   codes.Code
		client figures
		server figures
	}{
		{name: "success", duplex: func(s duplexServer) error { return send(s, 3) }, client: figures{calls: 1}, server: figures{calls: 1}},
		{
			name: "long, but not slow", client: figures{calls: 1}, server: figures{calls: 1},
			duplex: func(s duplexServer) error { err := send(s, 1); time.Sleep(5 * time.Second); return err },
		},
		{
			name: "fails at once", code: codes.Internal, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			duplex: func(duplexServer) error { return status.Error(codes.Internal, "boom") },
		},
		{
			name: "fails half-way", code: codes.Unavailable, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			duplex: func(s duplexServer) error { _ = send(s, 2); return status.Error(codes.Unavailable, "later") },
		},
		{
			name: "not found", code: codes.NotFound, client: figures{calls: 1}, server: figures{calls: 1},
			duplex: func(duplexServer) error { return status.Error(codes.NotFound, "no such thing") },
		},
		{
			name: "panics at once", code: codes.Internal, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			duplex: func(duplexServer) error { panic("boom") },
		},
		{
			name: "panics half-way", code: codes.Internal, client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
			duplex: func(s duplexServer) error { _ = send(s, 1); panic("boom") },
		},
		{
			name: "canceled", code: codes.Canceled, duplex: forever, client: figures{calls: 1}, server: figures{calls: 1},
			use: func(t *testing.T, _ *world, s client, cancel context.CancelFunc) error {
				t.Helper()
				_, err := s.Recv()
				require.NoError(t, err)
				cancel()
				_, err = s.Recv()
				return err
			},
		},
		{
			name: "abandoned half-way", duplex: forever, client: figures{calls: 1}, server: figures{calls: 1},
			use: func(t *testing.T, _ *world, s client, cancel context.CancelFunc) error {
				t.Helper()
				_, err := s.Recv()
				require.NoError(t, err)
				cancel() // and nobody looks at it again
				return nil
			},
		},
		{
			name: "deadline", code: codes.DeadlineExceeded, limit: time.Minute, duplex: forever,
			client: figures{calls: 1, failures: 1}, server: figures{calls: 1, failures: 1},
		},
		{
			name: "server gone half-way", code: codes.Unavailable, duplex: forever,
			client: figures{calls: 1, failures: 1}, server: figures{calls: 1},
			use: func(t *testing.T, w *world, s client, _ context.CancelFunc) error {
				t.Helper()
				_, err := s.Recv()
				require.NoError(t, err)
				w.server.Stop()
				_, err = s.Recv()
				return err
			},
		},
		{
			name: "connection closed half-way", code: codes.Canceled, duplex: forever, client: figures{calls: 1}, server: figures{calls: 1},
			use: func(t *testing.T, w *world, s client, _ context.CancelFunc) error {
				t.Helper()
				_, err := s.Recv()
				require.NoError(t, err)
				_ = w.conn.Close()
				_, err = s.Recv()
				return err
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, in := guarded(t, "out"), guarded(t, "in")
				w, stop := start(t, &service{duplex: tt.duplex}, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(),
					grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
				defer stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.limit > 0 {
					c, cancel := context.WithTimeout(ctx, tt.limit)
					defer cancel()
					ctx = c
				}
				s, err := w.FullDuplexCall(ctx)
				require.NoError(t, err)
				assert.Equal(t, 1, inFlight(out), "while the stream is open")
				if tt.use != nil {
					err = tt.use(t, w, s, cancel)
				} else {
					err = readAll(t, s, cancel)
				}
				assert.Equal(t, tt.code, status.Code(err), "%v", err)
				synctest.Wait()
				assert.Zero(t, inFlight(out), "client's permits")
				assert.Zero(t, inFlight(in), "server's permits")
				assert.Equal(t, tt.client, figuresOf(out), "client's breaker")
				assert.Equal(t, tt.server, figuresOf(in), "server's breaker")
			})
		})
	}
}

func TestStreamIsRefusedAndServerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, in := guarded(t, "out"), guarded(t, "in")
		svc := &service{duplex: func(s duplexServer) error { <-s.Context().Done(); return nil }}
		w, stop := start(t, svc, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(),
			grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			_, err := w.FullDuplexCall(ctx)
			require.NoError(t, err)
		}
		_, err := w.FullDuplexCall(ctx)
		require.ErrorIs(t, err, policy.ErrRejected)
		require.Equal(t, codes.Unavailable, status.Code(err))
		cancel()
		synctest.Wait()
		require.Zero(t, inFlight(out))
		require.Zero(t, inFlight(in))

		w.server.Stop()
		synctest.Wait()
		_, err = w.FullDuplexCall(t.Context())
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Zero(t, inFlight(out))
		require.EqualValues(t, 1, figuresOf(out).failures)
	})
}

// An upload has one answer, and with it the end.
func TestUploadEndsWithItsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, in := guarded(t, "out"), guarded(t, "in")
		svc := &service{upload: func(s uploadServer) error {
			for {
				if _, err := s.Recv(); err != nil {
					return s.SendAndClose(&pb.StreamingInputCallResponse{})
				}
			}
		}}
		w, stop := start(t, svc, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(),
			grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
		defer stop()
		s, err := w.StreamingInputCall(t.Context())
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, s.Send(&pb.StreamingInputCallRequest{}))
		}
		require.Equal(t, 1, inFlight(out))
		_, err = s.CloseAndRecv()
		require.NoError(t, err)
		synctest.Wait()
		require.Zero(t, inFlight(out))
		require.Zero(t, inFlight(in))
		require.Equal(t, figures{calls: 1}, figuresOf(out))
		require.Equal(t, figures{calls: 1}, figuresOf(in))
	})
}

// A panic below the client's interceptor, and one in its classifier.
func TestClientPanicsGiveBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  grpcx.ClientConfig
		next grpc.UnaryInvoker
		want figures
	}{
		"below": {
			next: func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { panic("boom") },
			want: figures{calls: 1, failures: 1},
		},
		"classifier": {
			cfg: grpcx.ClientConfig{Classify: func(string, *status.Status) policy.Kind { panic("boom") }},
			next: func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return status.Error(codes.Internal, "boom")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := guarded(t, "out")
			require.PanicsWithValue(t, "boom", func() {
				_ = grpcx.NewClient(p, c.cfg).Unary(t.Context(), unaryMethod, nil, nil, nil, c.next)
			})
			require.Zero(t, inFlight(p))
			require.Equal(t, c.want, figuresOf(p))
		})
	}
	p := guarded(t, "out")
	require.PanicsWithValue(t, "boom", func() {
		_, _ = grpcx.NewClient(p, grpcx.ClientConfig{}).Stream(t.Context(), &grpc.StreamDesc{}, nil, streamMethod,
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				panic("boom")
			})
	})
	require.Zero(t, inFlight(p))
}
