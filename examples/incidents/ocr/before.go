package ocr

import (
	"context"
	"time"
)

// before is the client of the vendor as it was.
type before struct {
	vendor *vendor
	tokens chan struct{} // filled at 10 per second
	done   chan struct{}
}

// region before

func newBefore(v *vendor) *before {
	b := &before{vendor: v, tokens: make(chan struct{}, 25), done: make(chan struct{})}
	go func() {
		refill := time.NewTicker(time.Second / 10)
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

// scan waits for a token, in one line with everybody else, for as long as the caller does.
// What fails is tried again.
func (b *before) scan(ctx context.Context, doc document) error {
	select {
	case <-b.tokens:
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	for range 3 {
		if err = b.vendor.scan(ctx, doc); err == nil {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

// endregion

func (b *before) realtime(ctx context.Context, doc document) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.scan(ctx, doc)
}

func (b *before) batch(ctx context.Context, doc document) error { return b.scan(ctx, doc) }

func (b *before) stop() { close(b.done) }
