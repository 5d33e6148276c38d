package frameworks_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/examples/frameworks"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	// fasthttp keeps the time of its Date header on a goroutine, for ever.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/gofiber/utils/v2.StartTimeStampUpdater.func1.1"))
}

var errBoom = errors.New("boom")

// refused is what a pipeline says that a handler has called.
var refused = &policy.RejectedError{Dependency: "inventory", Policy: "breaker", Reason: policy.ReasonOpen, RetryAfter: 7 * time.Second, Err: breaker.ErrOpen}

// A handler of the test does what the request's query says.
const (
	succeed  = "/orders/7?do=succeed"
	fail     = "/orders/7?do=fail"   // with an error
	answer   = "/orders/7?do=answer" // with a 502
	refuse   = "/orders/7?do=refuse"
	missing  = "/orders/7?do=missing" // with the framework's own error
	explode  = "/orders/7?do=explode"
	captcha  = "/captcha/7?do=succeed"
	shopUser = "X-User"
)

// A framework is built around a pipeline for all routes and one for captchas, and sends a request.
type framework struct {
	name  string
	build func(t *testing.T, all, captcha *policy.Pipeline, watch func()) func(req *http.Request) *http.Response
}

func user(r *http.Request) string { return r.Header.Get(shopUser) }

func server(t *testing.T, p *policy.Pipeline) *httpx.Server {
	t.Helper()
	s, err := httpx.NewServer(p, httpx.ServerConfig{Key: user})
	require.NoError(t, err)
	return s
}

func recorded(h http.Handler) func(req *http.Request) *http.Response {
	return func(req *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Result()
	}
}

var all = []framework{
	{name: "chi", build: func(t *testing.T, all, captcha *policy.Pipeline, watch func()) func(*http.Request) *http.Response {
		t.Helper()
		return recorded(recovered(frameworks.Chi(server(t, all), server(t, captcha), func(w http.ResponseWriter, r *http.Request) error {
			watch()
			switch r.URL.Query().Get("do") {
			case "fail":
				return errBoom
			case "answer":
				w.WriteHeader(http.StatusBadGateway)
			case "refuse":
				return refused
			case "missing":
				http.NotFound(w, r)
			case "explode":
				panic("boom")
			default:
				_, err := io.WriteString(w, "ok")
				return err
			}
			return nil
		})))
	}},
	{name: "gin", build: func(t *testing.T, all, captcha *policy.Pipeline, watch func()) func(*http.Request) *http.Response {
		t.Helper()
		e := gin.New()
		e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
		e.Use(frameworks.Gin(server(t, all)))
		show := func(c *gin.Context) {
			watch()
			switch c.Query("do") {
			case "fail":
				_ = c.Error(errBoom)
			case "answer":
				c.Status(http.StatusBadGateway)
			case "refuse":
				_ = c.Error(refused)
			case "missing":
				c.AbortWithStatus(http.StatusNotFound)
			case "explode":
				panic("boom")
			default:
				c.String(http.StatusOK, "ok")
			}
		}
		e.GET("/orders/:id", show)
		e.GET("/captcha/:id", frameworks.Gin(server(t, captcha)), show)
		return recorded(e)
	}},
	{name: "echo", build: func(t *testing.T, all, captcha *policy.Pipeline, watch func()) func(*http.Request) *http.Response {
		t.Helper()
		e := echo.New()
		e.HTTPErrorHandler = frameworks.EchoErrors(e)
		e.Use(frameworks.Echo(server(t, all)))
		show := func(c echo.Context) error {
			watch()
			switch c.QueryParam("do") {
			case "fail":
				return errBoom
			case "answer":
				return c.NoContent(http.StatusBadGateway)
			case "refuse":
				return refused
			case "missing":
				return echo.ErrNotFound
			case "explode":
				panic("boom")
			}
			return c.String(http.StatusOK, "ok")
		}
		e.GET("/orders/:id", show)
		e.GET("/captcha/:id", show, frameworks.Echo(server(t, captcha)))
		return recorded(recovered(e))
	}},
	{name: "fiber", build: func(t *testing.T, all, captcha *policy.Pipeline, watch func()) func(*http.Request) *http.Response {
		t.Helper()
		app := fiber.New(fiber.Config{ErrorHandler: frameworks.FiberError})
		t.Cleanup(func() { assert.NoError(t, app.Shutdown()) })
		key := func(c fiber.Ctx) string { return c.Get(shopUser) }
		app.Use(func(c fiber.Ctx) (err error) {
			defer func() {
				if recover() != nil {
					err = fiber.ErrInternalServerError
				}
			}()
			return c.Next()
		})
		app.Use(frameworks.Fiber(all, key))
		show := func(c fiber.Ctx) error {
			watch()
			switch c.Query("do") {
			case "fail":
				return errBoom
			case "answer":
				return c.SendStatus(http.StatusBadGateway)
			case "refuse":
				return refused
			case "missing":
				return fiber.ErrNotFound
			case "explode":
				panic("boom")
			}
			return c.SendString("ok")
		}
		app.Get("/orders/:id", show)
		app.Get("/captcha/:id", frameworks.Fiber(captcha, key), show)
		return func(req *http.Request) *http.Response {
			resp, err := app.Test(req, fiber.TestConfig{})
			require.NoError(t, err)
			return resp
		}
	}},
}

// recovered is the recovering middleware that every server has.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// got is what a client sees of an answer.
type got struct {
	status int
	after  string
	body   string
}

func send(t *testing.T, do func(*http.Request) *http.Response, url, user string) got {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	req.Header.Set(shopUser, user)
	resp := do(req)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return got{resp.StatusCode, resp.Header.Get("Retry-After"), string(body)}
}

func pipeline(t *testing.T, name string, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New(name, policies...)
	require.NoError(t, err)
	return p
}

func inFlight(p *policy.Pipeline) (n int) {
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			n += ps.Bulkhead.InFlight
		}
	}
	return n
}

// The same through every framework: who is let in, what clients get, and what the pipeline is
// told.
func TestFrameworks(t *testing.T) {
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			slots := pipeline(t, "inbound", bulkhead.Semaphore{Limit: 1})
			var during int
			do := f.build(t, slots, nil, func() { during += inFlight(slots) }) //nolint:bodyclose // send does
			for i, c := range []struct {
				url    string
				status int
				after  string
				kind   policy.Kind
			}{
				{succeed, 200, "", policy.Success},
				{fail, 500, "", policy.Failure},
				{answer, 502, "", policy.Failure},
				{refuse, 503, "7", policy.NotRun},
				{missing, 404, "", policy.Permanent},
				{explode, 500, "", policy.Failure},
				{succeed, 200, "", policy.Success},
			} {
				before := slots.Snapshot().Attempts
				g := send(t, do, c.url, "ann")
				assert.Equal(t, c.status, g.status, c.url)
				assert.Equal(t, c.after, g.after, c.url)
				assert.NotContains(t, g.body, "boom", c.url)
				assert.Zero(t, inFlight(slots), "%s: the permit is back", c.url)
				assert.Equal(t, i+1, during, "%s: and was there during the call", c.url)
				after := slots.Snapshot().Attempts
				assert.Equal(t, before[c.kind]+1, after[c.kind], "%s counts as %s: %v", c.url, c.kind, after)
			}
		})
	}
}

// A limit by user, one more on a route, and what is said of them.
func TestFrameworksRefuse(t *testing.T) {
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			perUser := pipeline(t, "inbound", ratelimit.Keyed{Name: "user", Rate: ratelimit.Every(time.Hour), Burst: 3})
			one := pipeline(t, "captcha", ratelimit.TokenBucket{Name: "captcha", Rate: ratelimit.Every(time.Minute), Burst: 1})
			calls := 0
			do := f.build(t, perUser, one, func() { calls++ })
			var statuses []int
			for _, url := range []string{captcha, captcha, succeed, succeed, succeed} {
				statuses = append(statuses, send(t, do, url, "ann").status)
			}
			assert.Equal(t, []int{200, 429, 200, 200, 429}, statuses, "the refusal of the route takes none of the user's tokens")
			assert.Equal(t, 3, calls)
			assert.Equal(t, 200, send(t, do, succeed, "bob").status)

			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, succeed, http.NoBody)
			req.Header.Set(shopUser, "ann")
			resp := do(req)
			defer resp.Body.Close()
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			var problem struct {
				Type   string
				Status int
			}
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
			assert.Equal(t, httpx.TypeQuotaExceeded, problem.Type)
			assert.Equal(t, 429, problem.Status)
			limits, err := httpsfv.UnmarshalList(resp.Header["Ratelimit-Policy"])
			require.NoError(t, err)
			require.Len(t, limits, 1)
			item := limits[0].(httpsfv.Item)
			assert.Equal(t, "user", item.Value)
			assert.Equal(t, map[string]any{"q": int64(3), "w": int64(10800)}, params(item))
			left, err := httpsfv.UnmarshalList(resp.Header["Ratelimit"])
			require.NoError(t, err)
			require.Len(t, left, 1)
			item = left[0].(httpsfv.Item)
			assert.Equal(t, "user", item.Value)
			assert.Equal(t, int64(0), params(item)["r"])
			assert.InDelta(t, 10800, params(item)["t"], 60)
		})
	}
}

func params(i httpsfv.Item) map[string]any {
	m := map[string]any{}
	for _, name := range i.Params.Names() {
		m[name], _ = i.Params.Get(name)
	}
	return m
}

// A breaker sees the failures, in whatever way a framework has them.
func TestFrameworksBreaker(t *testing.T) {
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			p := pipeline(t, "inbound", breaker.Config{MinCalls: 4, OpenFor: time.Hour})
			do := f.build(t, p, nil, func() {}) //nolint:bodyclose // send does
			for _, url := range []string{fail, answer, explode, fail} {
				assert.GreaterOrEqual(t, send(t, do, url, "").status, 500)
			}
			g := send(t, do, succeed, "")
			assert.Equal(t, 503, g.status)
			assert.Equal(t, "3600", g.after)
		})
	}
}

// What is written to a list of structured fields is read again as it was, whatever the names are.
func TestFormatQuotas(t *testing.T) {
	list := []policy.Quota{
		{Policy: `a "quoted" \ name`, Limit: 100, Window: time.Minute, Remaining: 50, Reset: 29500 * time.Millisecond},
		{Policy: "small", Limit: 1, Window: time.Millisecond},
	}
	limits, left := httpx.FormatQuotas(list)
	for i, text := range []string{limits, left} {
		parsed, err := httpsfv.UnmarshalList([]string{text})
		require.NoError(t, err)
		require.Len(t, parsed, 2)
		assert.Equal(t, list[0].Policy, parsed[0].(httpsfv.Item).Value)
		assert.Equal(t, []map[string]any{{"q": int64(100), "w": int64(60)}, {"r": int64(50), "t": int64(30)}}[i], params(parsed[0].(httpsfv.Item)))
		assert.Equal(t, []map[string]any{{"q": int64(1), "w": int64(1)}, {"r": int64(0), "t": int64(0)}}[i], params(parsed[1].(httpsfv.Item)))
		again, err := httpsfv.Marshal(parsed)
		require.NoError(t, err)
		assert.Equal(t, text, again)
	}
	limits, left = httpx.FormatQuotas(nil)
	assert.Empty(t, limits+left)
}

// A handler of net/http, server and all, inside of fiber.
func TestFiberAdaptor(t *testing.T) {
	p := pipeline(t, "inbound", bulkhead.Semaphore{Limit: 1})
	h := server(t, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.Equal(t, 1, inFlight(p))
		w.WriteHeader(http.StatusBadGateway)
	}))
	app := fiber.New()
	app.All("/*", adaptor.HTTPHandler(h))
	resp, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), fiber.TestConfig{})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Equal(t, uint64(1), p.Snapshot().Attempts[policy.Failure])
	assert.Zero(t, inFlight(p))
	assert.NoError(t, app.Shutdown())
}

// Why the guide warns of adaptor.HTTPMiddleware: the permit is back before the handler runs.
func TestFiberMiddlewareOfTheAdaptorHoldsNothing(t *testing.T) {
	p := pipeline(t, "inbound", bulkhead.Semaphore{Limit: 1})
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(server(t, p).Handler))
	var during int
	app.Get("/", func(c fiber.Ctx) error {
		during = inFlight(p)
		return c.SendStatus(http.StatusBadGateway)
	})
	resp, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), fiber.TestConfig{})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Zero(t, during)
	assert.Equal(t, uint64(1), p.Snapshot().Attempts[policy.Success], "and the failure is not seen")
	assert.NoError(t, app.Shutdown())
}

// gin's streams ask their writer whether the client is gone, and panic if it cannot tell.
func TestGinStreams(t *testing.T) {
	for name, inside := range map[string]bool{"around the engine": false, "as a middleware": true} {
		t.Run(name, func(t *testing.T) {
			p := pipeline(t, "inbound", bulkhead.Semaphore{Limit: 1})
			e := gin.New()
			var h http.Handler = e
			if inside {
				e.Use(frameworks.Gin(server(t, p)))
			} else {
				h = server(t, p).Handler(e)
			}
			left := 2
			e.GET("/", func(c *gin.Context) {
				c.Stream(func(io.Writer) bool {
					c.SSEvent("n", left)
					left--
					return left > 0
				})
			})
			s := httptest.NewServer(h)
			defer s.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := s.Client().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, "event:n\ndata:2\n\nevent:n\ndata:1\n\n", string(body))
			require.Eventually(t, func() bool { return inFlight(p) == 0 }, 10*time.Second, time.Millisecond)
			assert.Equal(t, uint64(1), p.Snapshot().Attempts[policy.Success])
		})
	}
}
