package ratelimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ host    = (*Buckets)(nil)
	_ member  = (*Buckets)(nil)
	_ Limiter = (*keyLimiter)(nil)
)

// Wait takes n tokens of the key's bucket, waiting for them for at most MaxWait among
// at most MaxWaiters. Those who wait for one key are let in in the order in which they
// came; whoever takes tokens without waiting goes first. It returns nil when the tokens
// are the caller's, and otherwise, with nothing taken:
//
//   - at once, a [*policy.RejectedError] that matches [ErrLimited]: MaxWait is zero
//     ([policy.ReasonRate]); MaxWaiters wait already ([policy.ReasonWaiters]); the wait
//     would be longer than MaxWait ([policy.ReasonWait]), or last until the deadline of
//     ctx ([policy.ReasonDeadline], which matches [context.DeadlineExceeded] too)
//   - at once, a [*policy.RejectedError] that matches [ErrExceedsBurst]
//     ([policy.ReasonCost]), when n exceeds the burst
//   - the error of ctx, matching its cause, when it is done, before or during the wait;
//     this is no [policy.ErrRejected]. Those behind move up
//   - during the wait, one of the first refusals, when tokens that were counted on were
//     taken by others, or the limit was lowered
//
// An n of zero or less takes nothing.
func (b *Buckets) Wait(ctx context.Context, key string, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if n <= 0 {
		return nil
	}
	_, _, err := b.lobby.take(ctx, time.Now(), &policy.Call{Key: key}, n)
	return err
}

// try implements [host]. Part 1 is the bucket of those who find no room.
func (b *Buckets) try(now time.Time, c *policy.Call, n int) (delay time.Duration, v verdict, part int) {
	delay, v, shared := b.take(b.at(now), c.Key, n)
	if shared {
		part = 1
	}
	return delay, v, part
}

// foresee implements [host].
func (b *Buckets) foresee(now time.Time, c *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int) {
	delay, v = b.lookAfter(b.at(now), c.Key, ahead, n)
	return delay, v, 0
}

// giveBack implements [host].
func (b *Buckets) giveBack(taken time.Time, c *policy.Call, n, part int) {
	b.giveBackTo(b.now(), b.at(taken), c.Key, n, part)
}

func (b *Buckets) giveBackTo(at, taken int64, key string, n, part int) {
	if part == 1 {
		b.overflow.giveBack(at, taken, n)
		b.lobby.look()
		return
	}
	b.refund(at, taken, key, n)
}

// refusal implements [host].
func (b *Buckets) refusal(err *policy.RejectedError, _ int) error {
	err.Policy = b.name
	return err
}

func (b *Buckets) takeFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	delay, v, _ := b.take(b.at(now), c.Key, n)
	return delay, v
}

func (b *Buckets) lookFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	return b.look(b.at(now), c.Key, n)
}

// refundFor cannot know whether the tokens came from the bucket that is shared by those
// who find no room. Those are lost then.
func (b *Buckets) refundFor(taken time.Time, c *policy.Call, n int) { b.Refund(taken, c.Key, n) }

func (b *Buckets) undoFor(taken time.Time, c *policy.Call, n int) {
	b.refund(b.at(taken), b.at(taken), c.Key, n)
}

func (b *Buckets) title() string { return b.name }

// For returns the limiter of one key, whatever the calls say. It shares the key's bucket
// with all others who use the key, and costs nothing to make.
//
// Its Reserve reserves nothing ahead of time: a reservation is OK only without a delay.
// Its SetRate is [Buckets.SetException] with the key's burst as it is.
func (b *Buckets) For(key string) Limiter { return &keyLimiter{b: b, call: policy.Call{Key: key}} }

// keyLimiter is one key of [Buckets].
type keyLimiter struct {
	b    *Buckets
	call policy.Call
}

// BuildPolicy implements [policy.Policy].
func (k *keyLimiter) BuildPolicy() (policy.Part, error) {
	part, err := k.b.BuildPolicy()
	part.Gate = k
	return part, err
}

// Peek implements [policy.Gate].
func (k *keyLimiter) Peek(a *policy.Attempt) error { return k.b.peek(a, &k.call) }

// Enter implements [policy.Gate].
func (k *keyLimiter) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	return k.b.enter(ctx, a, &k.call, slot)
}

// Leave implements [policy.Gate].
func (k *keyLimiter) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	k.b.leave(a, &k.call, slot, o)
}

// Refund implements [Limiter].
func (k *keyLimiter) Refund(taken time.Time, n int) { k.b.refundFor(taken, &k.call, n) }

// limit returns the key's limit.
func (k *keyLimiter) limit() Limit {
	if own := k.b.exception(k.call.Key); own != nil {
		c := own.Config()
		return Limit{Rate: c.Rate, Burst: c.Burst}
	}
	return *k.b.limit.Load()
}

// Snapshot implements [policy.Snapshotter].
func (k *keyLimiter) Snapshot(now time.Time) policy.PolicySnapshot {
	l := k.limit()
	return policy.PolicySnapshot{
		Name: k.b.name, Kind: keyedKind, Shadow: k.b.shadow,
		Limiter: &policy.LimiterSnapshot{
			Tokens: k.b.Tokens(now, k.call.Key), Burst: float64(l.Burst), Rate: l.Rate.perSecond(),
			Waiting: int(k.b.lobby.waiting.Load()), MaxWaiters: int(k.b.lobby.maxWaiters.Load()), Delay: k.delay(now),
		},
	}
}

// delay returns how long a call of cost 1 has to wait.
func (k *keyLimiter) delay(now time.Time) time.Duration {
	delay, _ := k.lookFor(now, nil, 1)
	return delay
}

// Take implements [Limiter].
func (k *keyLimiter) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	return k.b.Take(now, k.call.Key, n)
}

// Wait implements [Limiter].
func (k *keyLimiter) Wait(ctx context.Context, n int) error { return k.b.Wait(ctx, k.call.Key, n) }

// Reserve implements [Limiter].
func (k *keyLimiter) Reserve(now time.Time, n int) Reservation {
	delay, ok := k.Take(now, n)
	return Reservation{ok: ok, delay: delay}
}

// SetRate implements [Limiter].
func (k *keyLimiter) SetRate(rate Rate) error {
	return k.b.SetException(k.call.Key, Limit{Rate: rate, Burst: k.limit().Burst})
}

func (k *keyLimiter) takeFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return k.b.takeFor(now, &k.call, n)
}

func (k *keyLimiter) lookFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return k.b.lookFor(now, &k.call, n)
}

func (k *keyLimiter) refundFor(at time.Time, _ *policy.Call, n int) {
	k.b.refundFor(at, &k.call, n)
}

func (k *keyLimiter) undoFor(at time.Time, _ *policy.Call, n int) {
	k.b.undoFor(at, &k.call, n)
}

func (k *keyLimiter) title() string { return k.b.name }
