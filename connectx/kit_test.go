package connectx_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	getPath   = "/shop.Stock/Get"
	watchPath = "/shop.Stock/Watch"
)

type (
	text      = wrapperspb.StringValue
	getFunc   = func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error)
	watchFunc = func(ctx context.Context, s *connect.BidiStream[text, text]) error
)

// service is a server made of functions.
type service struct {
	get   getFunc
	watch watchFunc
}

// world is a server and a client of it, in memory.
type world struct {
	server *memhttp.Server
	get    *connect.Client[text, text]
	watch  *connect.Client[text, text]
}

// start runs a server with one interceptor and makes a client with another; either may be
// nil.
func start(tb testing.TB, svc service, server, client connect.Interceptor, opts ...connect.ClientOption) *world {
	tb.Helper()
	var so []connect.HandlerOption
	if server != nil {
		so = append(so, connect.WithInterceptors(server))
	}
	if client != nil {
		opts = append(opts, connect.WithInterceptors(client))
	}
	mux := http.NewServeMux()
	if svc.get != nil {
		mux.Handle(getPath, connect.NewUnaryHandler(getPath, svc.get, so...))
	}
	if svc.watch != nil {
		mux.Handle(watchPath, connect.NewBidiStreamHandler(watchPath, svc.watch, so...))
	}
	mem := memhttp.NewServer(mux)
	transport := mem.Transport()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	hc := &http.Client{Transport: transport}
	return &world{
		server: mem,
		get:    connect.NewClient[text, text](hc, mem.URL()+getPath, opts...),
		watch:  connect.NewClient[text, text](hc, mem.URL()+watchPath, opts...),
	}
}

func (w *world) stock(ctx context.Context) (string, error) {
	resp, err := w.get.CallUnary(ctx, connect.NewRequest(wrapperspb.String("apples")))
	if err != nil {
		return "", err
	}
	return resp.Msg.GetValue(), nil
}

func (w *world) close() { w.server.Close() }

// answers serves a text.
func answers(s string) getFunc {
	return func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(wrapperspb.String(s)), nil
	}
}

// fails serves an error.
func fails(err error) getFunc {
	return func(context.Context, *connect.Request[text]) (*connect.Response[text], error) { return nil, err }
}

// pipe builds a pipeline.
func pipe(tb testing.TB, name string, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New(name, policies...)
	require.NoError(tb, err)
	return p
}

// protocols are all that a client may speak.
func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"connect":  nil,
		"grpc":     {connect.WithGRPC()},
		"grpc-web": {connect.WithGRPCWeb()},
	}
}
