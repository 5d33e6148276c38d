package otelx

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// LoggerConfig configures a [Logger]. The zero value is valid. It can be handed to
// [policy.New] as it is; [policy.Registry.Use] is better given one Logger for all.
type LoggerConfig struct {
	// Logger takes the lines. Nil means [slog.Default], as it is when a line is
	// written.
	Logger *slog.Logger

	// Interval is the time for which lines that repeat are counted instead: refusals of
	// one policy for one reason, answers of one fallback and the like. The first is
	// written at once, the rest as one line with their number when the interval ends.
	// Zero means 10s; negative writes every one.
	Interval time.Duration

	// ErrorText writes the texts of errors too, such as that of a fallback that
	// failed. They come from elsewhere and may hold what should not be in a log.
	ErrorText bool
}

// Validate reports every invalid field, joined. Today every LoggerConfig is valid.
func (c LoggerConfig) Validate() error { return nil }

// BuildPolicy implements [policy.Policy].
func (c LoggerConfig) BuildPolicy() (policy.Part, error) {
	l, err := NewLogger(c)
	if err != nil {
		return policy.Part{Kind: "logger"}, err
	}
	return l.BuildPolicy()
}

const defaultInterval = 10 * time.Second

// Logger is a [policy.Observer] that writes to a [slog.Logger]: one line for each change
// (the state of a breaker, the mode of a policy, a configuration), and of what may happen
// a thousand times a second (refusals, fallbacks, exhausted budgets) the first, and then
// how many there were. Nothing is dropped without being counted.
//
//	registry.Use(logger) // before the pipelines are built
//
// A handler that panics harms no call. A Logger is safe for concurrent use; [Logger.Close]
// writes what has been counted and not yet been written.
type Logger struct {
	cfg LoggerConfig

	mu     sync.Mutex
	repeat map[repeatKey]*repeat
	closed bool
}

// repeatKey is what lines that repeat have in common. All of it comes from closed sets
// or from the configuration.
type repeatKey struct {
	kind               policy.EventKind
	dependency, policy string
	what               string // reason, stop or result
	lane               string
}

// repeat is a line that was written and what has come of its kind since.
type repeat struct {
	suppressed uint64
	timer      *time.Timer
	level      slog.Level
	message    string
	attrs      []slog.Attr
}

// maxRepeats bounds the kinds of line that are counted at a time, should pipelines come
// without end; beyond it every line is written.
const maxRepeats = 4096

// NewLogger returns a Logger. The error joins everything that is wrong with cfg.
func NewLogger(cfg LoggerConfig) (*Logger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	return &Logger{cfg: cfg, repeat: map[repeatKey]*repeat{}}, nil
}

// Config returns the effective settings.
func (l *Logger) Config() LoggerConfig { return l.cfg }

// BuildPolicy implements [policy.Policy], so that a Logger can be handed to [policy.New]
// and [policy.Registry.Use] without [policy.Observe].
func (l *Logger) BuildPolicy() (policy.Part, error) {
	return policy.Observe(l).BuildPolicy()
}

// Close writes what has been counted. Events that follow are written one by one.
func (l *Logger) Close() error {
	l.mu.Lock()
	pending := l.repeat
	l.repeat, l.closed = map[repeatKey]*repeat{}, true
	l.mu.Unlock()
	for _, r := range pending {
		r.timer.Stop()
		if r.suppressed > 0 {
			l.summary(r, r.suppressed)
		}
	}
	return nil
}

// OnEvent implements [policy.Observer].
func (l *Logger) OnEvent(e policy.Event) {
	switch e.Kind {
	case policy.EventStateChange:
		l.change(e)
	case policy.EventConfig:
		l.config(e)
	case policy.EventRejected:
		l.refused(e, slog.LevelWarn, "call refused")
	case policy.EventShadow:
		l.refused(e, slog.LevelInfo, "call would have been refused")
	case policy.EventStopped:
		if e.Stop == policy.StopBudget {
			l.sampled(e, e.Stop.String(), "", slog.LevelWarn, "retry budget used up", slog.String("stop", e.Stop.String()))
		}
	case policy.EventFallback:
		l.fallback(e)
	default: // told by metrics and spans, and not worth a line
	}
}

// change writes a transition of a policy's state.
func (l *Logger) change(e policy.Event) {
	c := &e.Change
	level, message := slog.LevelInfo, "state changed"
	switch {
	case c.From == c.To:
		message = "mode changed"
	case c.To == "open" || c.To == "forced_open" || c.To == throttling || c.To == policy.SharedModeLocal || c.To == policy.SharedModeDeny:
		level = slog.LevelWarn
	}
	attrs := append(make([]slog.Attr, 0, 16), about(e)...)
	attrs = append(attrs, slog.String("from", c.From), slog.String("to", c.To), slog.String("why", c.Why))
	if c.Note != "" {
		attrs = append(attrs, slog.String("note", c.Note))
	}
	if c.Key != "" {
		attrs = append(attrs, slog.Bool("keyed", true)) // the key is a caller's, and no log's
	}
	if c.Calls > 0 {
		attrs = append(attrs, slog.Uint64("calls", c.Calls), slog.Uint64("failures", c.Failures), slog.Uint64("slow", c.Slow))
	}
	if c.Threshold > 0 {
		attrs = append(attrs, slog.Float64("figure", c.Ratio), slog.Float64("threshold", c.Threshold))
	}
	if c.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", c.RetryAfter))
	}
	l.write(level, message, attrs)
}

// config writes what became of a configuration. Whoever loads it sees the text of its
// faults, which say where in the file they are.
func (l *Logger) config(e policy.Event) {
	attrs := []slog.Attr{slog.String("version", e.Change.To), slog.String("config", e.Change.Note)}
	if e.Err != nil {
		l.write(slog.LevelError, "configuration refused", append(attrs, slog.String("error", e.Err.Error())))
		return
	}
	l.write(slog.LevelInfo, "configuration applied", attrs)
}

func (l *Logger) refused(e policy.Event, level slog.Level, message string) {
	reason, lane := e.Reason.String(), ""
	if part, ok := errors.AsType[*ratelimit.PartError](e.Err); ok {
		lane = part.Part
	}
	attrs := make([]slog.Attr, 0, 3)
	attrs = append(attrs, slog.String("reason", reason))
	if lane != "" {
		attrs = append(attrs, slog.String("lane", lane))
	}
	if e.RetryAfter > 0 && e.RetryAfter != policy.Never {
		attrs = append(attrs, slog.Duration("retry_after", e.RetryAfter))
	}
	l.sampled(e, reason, lane, level, message, attrs...)
}

func (l *Logger) fallback(e policy.Event) {
	if e.Err == nil {
		l.sampled(e, "served", "", slog.LevelInfo, "fallback answered", slog.String("outcome", e.Outcome.String()))
		return
	}
	attrs := []slog.Attr{slog.String("outcome", e.Outcome.String())}
	if l.cfg.ErrorText {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	l.sampled(e, "failed", "", slog.LevelWarn, "fallback failed", attrs...)
}

// about says whose event it is.
func about(e policy.Event) []slog.Attr {
	attrs := []slog.Attr{slog.String("dependency", e.Dependency)}
	if e.Policy != "" {
		attrs = append(attrs, slog.String("policy", e.Policy))
	}
	return attrs
}

// sampled writes an event, or counts it if one like it was written a short while ago.
func (l *Logger) sampled(e policy.Event, what, lane string, level slog.Level, message string, more ...slog.Attr) {
	attrs := append(about(e), more...)
	if l.cfg.Interval > 0 && l.counted(repeatKey{e.Kind, e.Dependency, e.Policy, what, lane}, level, message, attrs) {
		return
	}
	l.write(level, message, attrs)
}

// counted reports whether an event was counted and is not to be written.
func (l *Logger) counted(k repeatKey, level slog.Level, message string, attrs []slog.Attr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.repeat[k]; ok {
		r.suppressed++
		return true
	}
	if l.closed || len(l.repeat) >= maxRepeats {
		return false
	}
	r := &repeat{level: level, message: message, attrs: attrs}
	r.timer = time.AfterFunc(l.cfg.Interval, func() { l.flush(k, r) })
	l.repeat[k] = r
	return false
}

// flush writes what was counted in an interval, and goes on counting if there was
// something.
func (l *Logger) flush(k repeatKey, r *repeat) {
	l.mu.Lock()
	if l.repeat[k] != r {
		l.mu.Unlock()
		return
	}
	n := r.suppressed
	r.suppressed = 0
	if n == 0 {
		delete(l.repeat, k)
	} else {
		r.timer.Reset(l.cfg.Interval)
	}
	l.mu.Unlock()
	if n > 0 {
		l.summary(r, n)
	}
}

// summary writes how many lines like one that was written there would have been since.
func (l *Logger) summary(r *repeat, n uint64) {
	attrs := make([]slog.Attr, 0, len(r.attrs)+2)
	for _, a := range r.attrs {
		if a.Key != "retry_after" && a.Key != "error" { // those of the first
			attrs = append(attrs, a)
		}
	}
	attrs = append(attrs, slog.Uint64("suppressed", n), slog.Duration("interval", l.cfg.Interval))
	l.write(r.level, r.message, attrs)
}

func (l *Logger) write(level slog.Level, message string, attrs []slog.Attr) {
	defer dropPanic()
	to := l.cfg.Logger
	if to == nil {
		to = slog.Default()
	}
	to.LogAttrs(context.Background(), level, "breakwater: "+message, attrs...)
}
