package aggregator

import (
	"context"
	"sync"
	"time"
)

// before is the platform as it was: whatever comes goes to the database, and waits there
// for one of 100 connections. What has been read is kept for a while.
type before struct {
	db *database

	mu    sync.Mutex
	cache map[string]time.Time // until when a key is kept
}

// region before

// aggregate reads the figures of a shop.
func (b *before) aggregate(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.db.query(ctx)
}

// cached reads what many ask for, unless somebody has read it in the last 10 s.
func (b *before) cached(ctx context.Context, key string) error {
	b.mu.Lock()
	kept := time.Now().Before(b.cache[key])
	b.mu.Unlock()
	if kept {
		return nil
	}
	err := b.db.query(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cache[key] = time.Now().Add(10 * time.Second)
	return err
}

// endregion
