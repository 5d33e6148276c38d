package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	kind = "consume"

	defaultWorkers     = 10
	defaultMaxAttempts = 5
	defaultBaseDelay   = time.Second
	defaultMaxDelay    = time.Minute
	defaultMaxHold     = 10 * time.Minute
	defaultShutdown    = 10 * time.Second

	// How long a worker waits after a refusal that does not say how long, and between two
	// looks in any case: the breaker may be closed by hand.
	minWait, maxWait = 100 * time.Millisecond, 5 * time.Second
)

// Verdict is what is to become of a message.
type Verdict uint8

// The verdicts.
const (
	// Ack means that the message was handled: it is to be acknowledged.
	Ack Verdict = iota
	// Dead means that the handler cannot handle the message: it goes to the dead letters.
	Dead
	// Requeue means that the message is to come again: the consumer stops, or has held the
	// message for as long as it may.
	Requeue
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Ack:
		return "ack"
	case Dead:
		return "dead"
	case Requeue:
		return "requeue"
	default:
		return "unknown"
	}
}

// Config configures a [Processor]. The zero value is valid: every field documents what zero
// means.
type Config struct {
	// Workers is the number of messages that are handled at a time, or held while the
	// pipeline refuses. Zero means 10.
	Workers int

	// MaxAttempts is how often the handler may fail before the message goes to the dead
	// letters. What the pipeline refuses is no attempt, nor is a failure that leaves a
	// breaker open: that is the dependency's, and MaxHold bounds it. What the pipeline's own
	// retry policy does within a call is one attempt. Zero means 5.
	MaxAttempts int

	// BaseDelay is the time after the first failed attempt; it doubles with each further
	// one, up to MaxDelay, and chance takes off up to half. Zero means 1s.
	BaseDelay time.Duration

	// MaxDelay caps the time between two attempts. Zero means 1m.
	MaxDelay time.Duration

	// MaxHold is how long a message is held before it is given back to the queue, with the
	// time that it waited for a worker. It should be well below the time after which the
	// queue takes a consumer for dead: 30m at RabbitMQ (consumer_timeout), no limit at
	// Kafka, whose clients tell it so in the background. A message that comes again has all
	// its attempts again, so MaxAttempts and their delays should fit into it. Zero means 10m.
	MaxHold time.Duration

	// Shutdown is how long handlers may go on when the consumer stops; then their contexts
	// end, and what they have not done is given back. Zero means 10s.
	Shutdown time.Duration

	// OnFailure is told of each attempt that failed, and of each message that is given
	// back, on the goroutine of its worker. Nil tells nobody.
	OnFailure func(f Failure)
}

// Failure is an attempt that did not handle its message.
type Failure struct {
	Attempt int     // from 1; 0 when the handler has not run
	Verdict Verdict // what becomes of the message, if Final
	Final   bool
	Err     error
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	check(c.Workers >= 0, "Workers", c.Workers, "at least 0 (0 means 10)")
	check(c.MaxAttempts >= 0, "MaxAttempts", c.MaxAttempts, "at least 0 (0 means 5)")
	check(c.BaseDelay >= 0, "BaseDelay", c.BaseDelay, "at least 0 (0 means 1s)")
	check(c.MaxDelay >= 0, "MaxDelay", c.MaxDelay, "at least 0 (0 means 1m)")
	check(c.MaxHold >= 0, "MaxHold", c.MaxHold, "at least 0 (0 means 10m)")
	check(c.Shutdown >= 0, "Shutdown", c.Shutdown, "at least 0 (0 means 10s)")
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = defaultMaxAttempts
	}
	set(&c.BaseDelay, defaultBaseDelay)
	set(&c.MaxDelay, defaultMaxDelay)
	set(&c.MaxHold, defaultMaxHold)
	set(&c.Shutdown, defaultShutdown)
	return c
}

// Processor runs handlers under a pipeline. It is made by [New] and safe for concurrent use.
type Processor struct {
	p   *policy.Pipeline
	cfg Config

	// until is when the workers may ask the pipeline again, in nanoseconds since began;
	// what one was told holds for all.
	until atomic.Int64
	began time.Time

	handling, held atomic.Int64

	acked, failed, refused, dead, requeued atomic.Uint64

	mu     sync.Mutex
	paused time.Time // since when the pipeline has let no message through; zero when it does
}

// New returns a processor under p. A nil p lets everything through.
func New(p *policy.Pipeline, cfg Config) (*Processor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Processor{p: p, cfg: cfg.withDefaults(), began: time.Now()}, nil
}

// Config returns the effective settings.
func (w *Processor) Config() Config { return w.cfg }

// Process handles one message, and says what is to become of it. It blocks while the pipeline
// refuses and between attempts, so that a worker has one message at a time. Its context is the
// consumer's: when it ends, the message is given back unless the handler has just done its
// work.
//
// The error says why, unless the verdict is Ack. A panic of the handler, or the end of its
// goroutine, is a failed attempt: the consumer goes on.
func (w *Processor) Process(ctx context.Context, handler func(context.Context) error) (Verdict, error) {
	return w.ProcessMessage(ctx, &Message{}, handler)
}

// Message is what a consumer knows of a message before it is handled. The zero value is a
// message that has just come.
type Message struct {
	// Arrived is when this consumer got the message, from which MaxHold counts: messages
	// may have to wait for a worker. Zero means now.
	Arrived time.Time

	// Failed is the number of its attempts that have failed and count. What is held for too
	// long, and has nobody to be given back to, goes on from here.
	Failed int
}

// ProcessMessage is [Processor.Process] for a message of which something is known. It adds
// the attempts that fail to m.
func (w *Processor) ProcessMessage(ctx context.Context, m *Message, handler func(context.Context) error) (Verdict, error) {
	began := m.Arrived
	if began.IsZero() {
		began = time.Now()
	}
	var alone time.Time // until when this message waits, and no other
	for last := 0; ; {  // the attempt whose handler ran last
		if err := w.wait(ctx, began, alone); err != nil {
			return w.end(Failure{Attempt: last, Verdict: Requeue, Final: true, Err: err})
		}
		attempt := m.Failed + 1
		err := w.run(ctx, handler)
		if err == nil {
			w.resume()
			w.acked.Add(1)
			return Ack, nil
		}
		o := policy.Classify(ctx, err)
		switch {
		case ctx.Err() != nil:
			return w.end(Failure{Attempt: attempt, Verdict: Requeue, Final: true, Err: err})
		case o.Kind == policy.NotRun:
			w.refused.Add(1)
			re, ok := errors.AsType[*policy.RejectedError](err)
			switch {
			case ok && re.RetryAfter == policy.Never:
				return w.end(Failure{Attempt: last, Verdict: Dead, Final: true, Err: err})
			case ok && re.Dependency != w.p.Name():
				// The handler asked another pipeline, which it may not do for each message.
				w.resume()
				alone = time.Now().Add(pauseOf(re))
			default:
				w.pause(pauseOf(re))
			}
			continue
		case o.Kind == policy.Permanent:
			w.resume()
			return w.end(Failure{Attempt: attempt, Verdict: Dead, Final: true, Err: err})
		}
		w.resume()
		sick := w.sick()
		if attempt >= w.cfg.MaxAttempts && !sick {
			return w.end(Failure{Attempt: attempt, Verdict: Dead, Final: true, Err: err})
		}
		last = attempt
		if !sick {
			m.Failed++
		}
		d := max(w.delay(attempt), min(o.Pushback, w.cfg.MaxDelay))
		left := w.cfg.MaxHold - time.Since(began)
		if d <= left {
			w.failed.Add(1)
			if w.cfg.OnFailure != nil {
				w.cfg.OnFailure(Failure{Attempt: attempt, Err: err})
			}
		}
		switch { // also what is to go back waits first: it may come again at once
		case !w.hold(ctx, min(d, left)):
			return w.end(Failure{Attempt: attempt, Verdict: Requeue, Final: true, Err: errors.Join(context.Cause(ctx), err)})
		case d > left:
			return w.end(Failure{Attempt: attempt, Verdict: Requeue, Final: true, Err: errors.Join(errHeld, err)})
		}
	}
}

// sick reports whether a breaker has found the dependency sick. What fails then says nothing
// about the message: a breaker's probes would use up the attempts of the few messages that
// they are made with.
func (w *Processor) sick() bool {
	for _, ps := range w.p.Snapshot().Policies {
		if b := ps.Breaker; b != nil && !ps.Shadow && (b.State == "open" || b.State == "half_open" || b.State == "recovering") {
			return true
		}
	}
	return false
}

// errHeld says why a message goes back that was not handled.
var errHeld = errors.New("consume: held for as long as MaxHold allows")

// end tells of the end of a message that was not handled.
func (w *Processor) end(f Failure) (Verdict, error) {
	if f.Verdict == Dead {
		w.dead.Add(1)
	} else {
		w.requeued.Add(1)
	}
	if w.cfg.OnFailure != nil {
		w.cfg.OnFailure(f)
	}
	return f.Verdict, f.Err
}

// run makes one call. The handler has a goroutine of its own, which may panic or end.
func (w *Processor) run(ctx context.Context, handler func(context.Context) error) error {
	w.handling.Add(1)
	defer w.handling.Add(-1)
	call, cancel := w.outlive(ctx)
	defer cancel()
	return policy.Run(call, w.p, func(ctx context.Context) (err error) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			returned := false
			defer func() {
				if returned {
					return
				}
				err = policy.ErrGoexit
				if v := recover(); v != nil {
					err = &policy.PanicError{Value: v, Stack: debug.Stack()}
				}
			}()
			err = handler(ctx)
			returned = true
		}()
		<-ended
		return err
	})
}

// outlive returns a context that ends Shutdown after ctx.
func (w *Processor) outlive(ctx context.Context) (context.Context, func()) {
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(w.cfg.Shutdown)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-ended:
		}
	})
	return call, func() {
		stop()
		close(ended)
		cancel(nil)
	}
}

// delay returns the time after an attempt.
func (w *Processor) delay(attempt int) time.Duration {
	d := w.cfg.BaseDelay
	for range attempt - 1 {
		if d >= w.cfg.MaxDelay/2 {
			d = w.cfg.MaxDelay
			break
		}
		d *= 2
	}
	d = min(d, w.cfg.MaxDelay)
	return d - time.Duration(rand.Float64()*float64(d)/2) //nolint:gosec // nothing is secret about it
}

// wait waits while the pipeline is known to refuse, or another one that refused this message.
func (w *Processor) wait(ctx context.Context, began, alone time.Time) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left := max(time.Duration(w.until.Load())-time.Since(w.began), time.Until(alone))
		if left <= 0 {
			return nil
		}
		hold := w.cfg.MaxHold - time.Since(began)
		if hold <= 0 {
			return errHeld
		}
		w.hold(ctx, min(left, hold))
	}
}

// hold waits with a message in hand. It reports false when the context has ended.
func (w *Processor) hold(ctx context.Context, d time.Duration) bool {
	w.held.Add(1)
	defer w.held.Add(-1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pauseOf returns how long to wait after a refusal, which may be nil.
func pauseOf(re *policy.RejectedError) time.Duration {
	if re == nil {
		return minWait
	}
	return min(max(minWait, re.RetryAfter), maxWait)
}

// pause keeps all workers from asking the pipeline until it may let a message through.
func (w *Processor) pause(d time.Duration) {
	now := time.Now()
	w.until.Store(int64(now.Sub(w.began) + d))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused.IsZero() {
		w.paused = now
	}
}

// resume notes that the pipeline has let a message through.
func (w *Processor) resume() {
	w.until.Store(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = time.Time{}
}

// PausedFor returns how long the pipeline has let no message through, for consumers that then
// fetch no more; 0 when it does.
func (w *Processor) PausedFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused.IsZero() {
		return 0
	}
	return time.Since(w.paused)
}

// Snapshot is what a [Processor] is doing and has done.
type Snapshot struct {
	Handling int           // handlers that run
	Held     int           // messages that wait, for the pipeline or for their next attempt
	Paused   time.Duration // how long the pipeline has let no message through; 0 when it does

	Acked    uint64 // messages that were handled
	Failed   uint64 // attempts that are followed by another
	Refused  uint64 // calls that the pipeline refused
	Dead     uint64 // messages for the dead letters
	Requeued uint64 // messages that were given back
}

// Snapshot returns the counters.
func (w *Processor) Snapshot() Snapshot {
	return Snapshot{
		Handling: int(w.handling.Load()), Held: int(w.held.Load()), Paused: w.PausedFor(),
		Acked: w.acked.Load(), Failed: w.failed.Load(), Refused: w.refused.Load(), Dead: w.dead.Load(), Requeued: w.requeued.Load(),
	}
}
