package frameworks

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/breakwater-go/breakwater/httpx"
)

// region echo

// Echo makes a middleware of a server. Errors are answered inside of it, where the server sees
// the answer: echo.WrapMiddleware would let them pass, and the server take them for successes.
func Echo(server *httpx.Server) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetResponse(outer)
			server.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil
		}
	}
}

// EchoErrors is an echo.HTTPErrorHandler: errors of echo's own are answered as ever, and all else
// as the server does it.
func EchoErrors(e *echo.Echo) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if _, ok := errors.AsType[*echo.HTTPError](err); ok || c.Response().Committed {
			e.DefaultHTTPErrorHandler(err, c)
			return
		}
		httpx.WriteError(c.Response(), c.Request(), err)
	}
}

// endregion
