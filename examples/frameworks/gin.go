package frameworks

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/breakwater-go/breakwater/httpx"
)

// region gin

// Gin makes a middleware of a server. An error that a handler has left in the context is answered
// as the server does it.
func Gin(server *httpx.Server) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, admitted := c.Writer, false
		defer func() { c.Writer = outer }()
		server.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request, c.Writer = r, &ginWriter{ResponseWriter: outer, w: w}
			c.Next()
			switch last := c.Errors.Last(); {
			case c.Writer.Written():
			case last != nil:
				httpx.WriteError(w, r, last.Err)
			default:
				w.WriteHeader(outer.Status()) // gin keeps it until the end
			}
		})).ServeHTTP(outer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// ginWriter is gin's writer whose answer passes by the server.
type ginWriter struct {
	gin.ResponseWriter

	w http.ResponseWriter
}

func (g *ginWriter) Unwrap() http.ResponseWriter { return g.w }

func (g *ginWriter) WriteHeaderNow() {
	if !g.Written() {
		g.w.WriteHeader(g.Status())
		g.ResponseWriter.WriteHeaderNow()
	}
}

func (g *ginWriter) Write(p []byte) (int, error) {
	g.WriteHeaderNow()
	return g.w.Write(p)
}

func (g *ginWriter) WriteString(s string) (int, error) { return g.Write([]byte(s)) }

func (g *ginWriter) Flush() {
	g.WriteHeaderNow()
	g.w.(http.Flusher).Flush() // gin's can, so the server's can
}

func (g *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(g.w).Hijack()
}

// endregion
