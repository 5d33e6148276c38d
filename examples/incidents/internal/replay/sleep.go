package replay

import (
	"context"
	"time"
)

// Sleep waits for a time, or until ctx is done, and returns its error then.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
