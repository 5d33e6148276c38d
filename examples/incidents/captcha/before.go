package captcha

import (
	"net/http"
	"time"
)

// before is the endpoint as it was: whoever finds no token waits for one, on his worker,
// for up to 3 s and without knowing whether there will be one. A refusal is an answer like
// any other, with nothing in it.
type before struct {
	store  *Store
	tokens chan struct{} // filled at 2 per second
	done   chan struct{}
}

// region before

func newBefore(s *Store) *before {
	b := &before{store: s, tokens: make(chan struct{}, 2), done: make(chan struct{})}
	go func() {
		refill := time.NewTicker(time.Second / 2)
		defer refill.Stop()
		for {
			select {
			case <-refill.C:
				select {
				case b.tokens <- struct{}{}:
				default: // it is full
				}
			case <-b.done:
				return
			}
		}
	}()
	return b
}

func (b *before) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	patience := time.NewTimer(3 * time.Second)
	defer patience.Stop()
	select {
	case <-b.tokens:
		picture, err := b.store.captcha(r.Context())
		if err == nil {
			_, _ = w.Write(picture)
			return
		}
	case <-patience.C:
	}
	w.WriteHeader(http.StatusOK) // "no captcha this time"
}

// endregion

func (b *before) stop() { close(b.done) }
