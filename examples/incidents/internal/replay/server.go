package replay

import (
	"net/http"
	"time"
)

// Server serves requests on so many workers. A request holds one from when it has one
// until it is answered, and waits in line while there is none.
type Server struct {
	Busy *Gauge // workers

	workers  chan struct{}
	patience time.Duration
}

// NewServer returns a server. Its clients leave when they have found no worker within a
// time, which may be 0.
func NewServer(workers int, patience time.Duration) *Server {
	return &Server{Busy: NewGauge(), workers: make(chan struct{}, workers), patience: patience}
}

// Serve calls handle on a worker, and reports false when the client left before that.
func (s *Server) Serve(handle func()) bool {
	if !s.worker() {
		return false
	}
	s.Busy.Add(1)
	handle()
	s.Busy.Add(-1)
	<-s.workers
	return true
}

// worker waits for a worker.
func (s *Server) worker() bool {
	select {
	case s.workers <- struct{}{}:
		return true
	default:
	}
	if s.patience == 0 {
		return false
	}
	left := time.NewTimer(s.patience)
	defer left.Stop()
	select {
	case s.workers <- struct{}{}:
		return true
	case <-left.C:
		return false
	}
}

// Response is an answer to an HTTP request, as its handler has written it.
type Response struct {
	Code int // 0 until it was written
	Size int // of the body
	Body string

	header http.Header
}

// Header implements [http.ResponseWriter].
func (r *Response) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements [http.ResponseWriter].
func (r *Response) WriteHeader(code int) {
	if r.Code == 0 {
		r.Code = code
	}
}

// Write implements [http.ResponseWriter].
func (r *Response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.Size += len(b)
	r.Body += string(b)
	return len(b), nil
}
