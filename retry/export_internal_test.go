package retry

import "time"

// FirstAt is [Retrier.First] at a time of the test's choice.
func FirstAt(r *Retrier, now time.Time) {
	if b, ok := r.budget.(*Budget); ok {
		b.firstAt(now)
	}
}

func (b *Budget) firstAt(now time.Time) { b.set.Load().counts.Add(now, 0) }
