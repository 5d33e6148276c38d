package ask

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// before is one of the instances as they were: each counts for itself, by the minutes of
// the clock.
type before struct {
	answers *dependency

	mu     sync.Mutex
	minute int64
	count  map[string]int
}

func newBefore(d *dependency) *before { return &before{answers: d, count: map[string]int{}} }

// region before

func (b *before) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.allow(r.Header.Get("User")) {
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	answer, err := b.answers.ask(ctx)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte(answer))
}

// allow counts up to 10 in each minute.
func (b *before) allow(user string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now().Unix() / 60; now != b.minute {
		b.minute = now
		clear(b.count)
	}
	b.count[user]++
	return b.count[user] <= 10
}

// endregion

// counter is the first try to share the count: read it, and write it back.
type counter struct {
	mu    sync.Mutex
	count int
}

func (c *counter) read() int {
	time.Sleep(time.Millisecond) // the trip to Redis
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *counter) write(n int) {
	time.Sleep(time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = n
}

func (c *counter) allow() bool {
	n := c.read()
	if n >= 10 {
		return false
	}
	c.write(n + 1)
	return true
}
