package connectx_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/connectx"
	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
)

// A message that is too large for the client's own bounds says nothing about the server, and
// must not slow down what adapts to one that is asked too often.
func TestTooLargeIsNotThrottled(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, opt := range map[string]connect.ClientOption{"sent": connect.WithSendMaxBytes(2), "read": connect.WithReadMaxBytes(2)} {
				synctest.Test(t, func(t *testing.T) {
					p := pipe(t, "stock")
					w := start(t, service{get: answers("12 apples")}, nil, connectx.NewClient(p, connectx.ClientConfig{}), append(opts, opt)...)
					defer w.close()
					_, err := w.stock(t.Context())
					require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), what)
					require.EqualValues(t, 1, p.Snapshot().Attempts[policy.Permanent], what)
				})
			}
			synctest.Test(t, func(t *testing.T) { // and one of the server's is what it was
				p := pipe(t, "stock")
				get := fails(connect.NewError(connect.CodeResourceExhausted, errors.New("no")))
				w := start(t, service{get: get}, nil, connectx.NewClient(p, connectx.ClientConfig{}), opts...)
				defer w.close()
				_, err := w.stock(t.Context())
				require.Error(t, err)
				require.EqualValues(t, 1, p.Snapshot().Attempts[policy.Throttled])
			})
		})
	}
}

// What a server further down has sent in its header is not for our callers: connect leaves it
// out of an error that a handler passes on, and so do we when we add the time to come back.
func TestHeadersOfOthersAreNotPassedOn(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				down := start(t, service{get: func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
					ce := connect.NewError(connect.CodeUnavailable, errors.New(strings.Repeat("no", 50)))
					ce.Meta().Set("Set-Cookie", "session=ours")
					return nil, ce
				}}, nil, connectx.NewClient(pipe(t, "down", retries()), connectx.ClientConfig{Idempotent: always, Internal: true}), opts...)
				defer down.close()
				trust := connectx.ServerConfig{Trust: func(context.Context, connectx.Incoming) bool { return true }}
				w := start(t, service{get: func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
					s, err := down.stock(ctx)
					return connect.NewResponse(wrapperspb.String(s)), err
				}}, connectx.NewServer(nil, trust), nil, opts...)
				defer w.close()
				_, err := w.stock(t.Context())
				require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err), "%v", err)
				ce, ok := errors.AsType[*connect.Error](err)
				require.True(t, ok)
				require.Equal(t, "-1", ce.Meta().Get(hop.PushbackKey), "it was retried in vain")
				require.Empty(t, ce.Meta().Get("Set-Cookie"))
			})
		})
	}
}
