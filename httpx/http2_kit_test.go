package httpx_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// HTTP/2 as far as a server needs it that does what a real one does only when it is ill
// (RFC 9113 §4.1, §6, §7). Requests are told apart by nothing but their order.
const (
	h2Data         = 0
	h2Headers      = 1
	h2ResetStream  = 3
	h2Settings     = 4
	h2Ping         = 6
	h2GoAway       = 7
	h2WindowUpdate = 8

	h2EndStream  = 1
	h2EndHeaders = 4
	h2Ack        = 1

	h2NoError         = 0
	h2InternalError   = 2
	h2RefusedStream   = 7
	h2EnhanceYourCalm = 11

	h2Status200 = "\x88" // in HPACK's static table
	h2Status500 = "\x8e"
)

// h2Conn is a server's side of a connection.
type h2Conn struct {
	net.Conn

	t *testing.T
}

func (c *h2Conn) frame(kind, flags byte, stream uint32, payload []byte) {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = c.Write(append(head, payload...)) // the client may be gone
}

func words(list ...uint32) []byte {
	var b []byte
	for _, w := range list {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// What a server may do with the request on a stream.
func (c *h2Conn) answer(stream uint32, status string) {
	c.frame(h2Headers, h2EndHeaders|h2EndStream, stream, []byte(status))
}

func (c *h2Conn) half(stream uint32) {
	c.frame(h2Headers, h2EndHeaders, stream, []byte(h2Status200))
	c.frame(h2Data, 0, stream, []byte("half"))
}

func (c *h2Conn) reset(stream, code uint32) { c.frame(h2ResetStream, 0, stream, words(code)) }

func (c *h2Conn) goAway(last, code uint32) { c.frame(h2GoAway, 0, 0, words(last, code)) }

// h2Step is what becomes of one request.
type h2Step struct {
	early bool // at its header, in place of its end
	do    func(c *h2Conn, stream uint32)
}

// h2Server answers with one step after the other, over all connections, and repeats the last.
type h2Server struct {
	steps []h2Step

	mu     sync.Mutex
	seen   int      // requests that have begun
	bodies []string // digests of those that came whole
}

// start listens on the loopback interface.
func (s *h2Server) start(t *testing.T) (rt *http.Transport, url string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				s.serve(&h2Conn{nc, t})
			})
		}
	})
	rt = &http.Transport{Protocols: new(http.Protocols)}
	rt.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		rt.CloseIdleConnections()
		assert.NoError(t, l.Close())
		wg.Wait()
	})
	return rt, "http://" + l.Addr().String()
}

func (s *h2Server) serve(c *h2Conn) {
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // no test takes as long
	r := bufio.NewReader(c)
	if _, err := r.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		return
	}
	// A window that no body of a test fills: 4 is SETTINGS_INITIAL_WINDOW_SIZE.
	c.frame(h2Settings, 0, 0, append([]byte{0, 4}, words(1<<30)...))
	c.frame(h2WindowUpdate, 0, 0, words(1<<30))
	steps := map[uint32]h2Step{}
	sums := map[uint32]hash.Hash{}
	sizes := map[uint32]int{}
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch kind {
		case h2Settings:
			if flags&h2Ack == 0 {
				c.frame(h2Settings, h2Ack, 0, nil)
			}
			continue
		case h2Ping:
			if flags&h2Ack == 0 {
				c.frame(h2Ping, h2Ack, 0, payload)
			}
			continue
		case h2Headers:
			steps[stream], sums[stream] = s.next(), sha256.New()
			if steps[stream].early {
				steps[stream].do(c, stream)
			}
		case h2Data:
			_, _ = sums[stream].Write(payload)
			sizes[stream] += len(payload)
		default:
			continue
		}
		if flags&h2EndStream != 0 {
			s.whole(fmt.Sprintf("%d bytes, %x", sizes[stream], sums[stream].Sum(nil)))
			if !steps[stream].early {
				steps[stream].do(c, stream)
			}
		}
	}
}

func (s *h2Server) next() h2Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	return s.steps[min(s.seen, len(s.steps))-1]
}

func (s *h2Server) whole(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, digest)
}

// requests returns the number of requests that have begun, and the digest of the last one
// that came whole.
func (s *h2Server) requests(t *testing.T) (n int, last string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.bodies)
	return s.seen, s.bodies[len(s.bodies)-1]
}
