package redisx

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// Hook is a [redis.Hook] that sends commands through a pipeline. It is made by [New], or by
// [Guard] for a client, and safe for concurrent use.
//
// Hooks that were added to the client before it see a command once, however often it is
// tried; those that are added after it see each attempt.
type Hook struct {
	cfg      Config
	p        *policy.Pipeline
	conns    *connections
	attached *policy.Attachment // nil without Guard
}

var _ redis.Hook = (*Hook)(nil)

// New makes a hook that sends each command through p. A nil p lets everything through and
// changes nothing. [Guard] also looks at the options of the client.
func New(p *policy.Pipeline, cfg Config) *Hook {
	cfg = cfg.withDefaults()
	return &Hook{cfg: cfg, p: p, conns: &connections{name: cfg.Name}}
}

// Config returns the effective settings.
func (h *Hook) Config() Config { return h.cfg }

// Detach takes the client's connections out of the snapshots of the pipeline: for a client
// that is closed while the pipeline lives on. The hook of a client goes on working.
func (h *Hook) Detach() {
	if h.attached != nil {
		h.attached.Detach()
	}
}

// DialHook implements [redis.Hook]: connections are made as they were, as a part of the command
// that needs one.
func (h *Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook]. The error is that of [policy.Do], or [redis.Nil].
func (h *Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.p == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		if sets(cmd) || within(ctx, h) {
			return next(ctx, cmd)
		}
		blocks := h.cfg.Blocks(cmd)
		call, again := h.call(ctx, blocks, cmd)
		x := exchange{h: h, caller: ctx, one: next, cmd: cmd, detached: h.p.Detaches(*call), again: again, blocks: blocks}
		if x.detached {
			if borrows(cmd) {
				return errBorrows(cmd)
			}
			x.cmd = cmd.Clone() // the caller may leave, and have the command back, before an attempt begins
		}
		v, err := policy.DoAttempt(ctx, h.p, call, x, send, nil)
		switch v := v.(type) {
		case reply:
			if v.cmd != nil {
				if wrong := give(cmd, v.cmd); wrong != nil && err == nil {
					err = wrong
				}
			}
			if err == nil {
				err = v.err
			}
		default:
			if err == nil {
				err = answer(cmd, v)
			}
		}
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook]. A pipeline is one call.
func (h *Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.p == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || all(cmds, sets) || within(ctx, h) {
			return next(ctx, cmds)
		}
		blocks := slices.ContainsFunc(cmds, h.cfg.Blocks)
		call, again := h.call(ctx, blocks, cmds...)
		x := exchange{h: h, caller: ctx, many: next, cmds: cmds, detached: h.p.Detaches(*call), again: again, blocks: blocks}
		if x.detached {
			if i := slices.IndexFunc(cmds, borrows); i >= 0 {
				return fail(cmds, errBorrows(cmds[i]))
			}
			x.cmds = clones(cmds)
		}
		v, err := policy.DoAttempt(ctx, h.p, call, x, sendMany, nil)
		switch v := v.(type) {
		case reply:
			for i, c := range v.cmds {
				if wrong := give(cmds[i], c); wrong != nil && err == nil {
					err = wrong
				}
			}
			if err == nil {
				return v.err
			}
			if v.sent && (v.cmds != nil || !x.detached) {
				return err // each command has its own
			}
		case nil:
		default:
			if err == nil {
				err = answerMany(cmds, v)
			}
		}
		return fail(cmds, err)
	}
}

// fail gives an error to each command.
func fail(cmds []redis.Cmder, err error) error {
	if err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
	}
	return err
}

// exchange is one call of the caller, tried once or more: a command, or a pipeline of them.
type exchange struct {
	h        *Hook
	caller   context.Context //nolint:containedctx // of the call, for what no timeout is to cut
	one      redis.ProcessHook
	cmd      redis.Cmder
	many     redis.ProcessPipelineHook
	cmds     []redis.Cmder
	detached bool // attempts may go on when the caller has left, so each has commands of its own
	again    bool // it may reach the server more than once
	blocks   bool // it waits in the server for something to happen
}

// reply is what an attempt leaves: nothing where the answer is in the caller's commands already.
type reply struct {
	err  error // of an answer that is a success all the same: redis.Nil
	cmd  redis.Cmder
	cmds []redis.Cmder
	sent bool
}

// The replies of nearly all attempts, so that they cost nothing.
var (
	inPlace any = reply{sent: true}
	noValue any = reply{sent: true, err: redis.Nil}
)

// send sends a command once.
func send(ctx context.Context, x exchange, at *policy.Attempt) (any, error) {
	cmd := x.cmd
	if x.detached {
		cmd = cmd.Clone()
	} else if at.Number() > 1 {
		cmd.SetErr(nil)
	}
	ctx, begin := x.context(ctx)
	err := x.one(ctx, cmd)
	at.Judging()
	if x.blocks {
		at.Paused(time.Since(begin))
	}
	if err == nil && !x.detached {
		return inPlace, nil
	}
	if re := x.h.unreached(ctx, at, err); re != nil {
		return x.reply(reply{cmd: cmd, sent: true}, policy.NotRun, re)
	}
	kind, err := x.h.judge(ctx, cmd, err)
	if !x.detached && err == redis.Nil && kind == policy.Success { //nolint:errorlint // as go-redis has it
		return noValue, nil
	}
	if err != nil && kind != policy.Success {
		x.settle(at, kind, kind == policy.NotRun || kind == policy.Permanent || x.again || notRun(cmd, err))
	}
	return x.reply(reply{cmd: cmd, sent: true}, kind, err)
}

// sendMany sends a pipeline once. Its worst command decides.
func sendMany(ctx context.Context, x exchange, at *policy.Attempt) (any, error) {
	cmds := x.cmds
	if x.detached {
		cmds = clones(x.cmds)
	} else if at.Number() > 1 {
		for _, c := range cmds {
			c.SetErr(nil)
		}
	}
	ctx, begin := x.context(ctx)
	first := x.many(ctx, cmds)
	at.Judging()
	if x.blocks {
		at.Paused(time.Since(begin))
	}
	if first == nil && !x.detached {
		return inPlace, nil
	}
	if re := x.h.unreached(ctx, at, first); re != nil {
		return x.reply(reply{cmds: cmds, sent: true}, policy.NotRun, fail(cmds, re))
	}
	worst, err := policy.Success, first
	for _, c := range cmds {
		if e := c.Err(); e != nil && e != redis.Nil { //nolint:errorlint // as go-redis has it
			k, judged := x.h.judge(ctx, c, e)
			if judged != e { //nolint:errorlint // whether it is another one
				c.SetErr(judged)
			}
			if worse(k, worst) {
				worst, err = k, judged
			}
		}
	}
	if k, judged := x.h.judge(ctx, cmds[0], first); first != nil && worse(k, worst) {
		worst, err = k, judged
	}
	if err != nil && worst != policy.Success {
		unsent := all(cmds, func(c redis.Cmder) bool { return notRun(c, c.Err()) })
		x.settle(at, worst, worst == policy.NotRun || worst == policy.Permanent || x.again || unsent)
	}
	return x.reply(reply{cmds: cmds, sent: true}, worst, err)
}

// badness orders kinds. What is not known counts by what the pipeline makes of it, which is
// mostly a failure.
var badness = [policy.NumKinds]int{
	policy.Success: 0, policy.Permanent: 1, policy.Canceled: 2, policy.Throttled: 3, policy.Busy: 4,
	policy.Failure: 5, policy.Timeout: 6, policy.NotRun: 7,
}

func worse(a, b policy.Kind) bool { return badness[a] > badness[b] }

// context returns what a command is sent under: marked, so that what go-redis sends on its way
// passes by, and without the timeouts of the pipeline where the command blocks. To cut one that
// has just popped something would lose that.
func (x *exchange) context(ctx context.Context) (out context.Context, begin time.Time) {
	if x.blocks {
		ctx, begin = patient{x.caller, ctx}, time.Now()
	}
	return context.WithValue(ctx, mark{}, x.h), begin
}

// patient is a context with the values of another.
type patient struct {
	context.Context //nolint:containedctx // this is one

	values context.Context //nolint:containedctx // likewise
}

func (p patient) Value(key any) any { return p.values.Value(key) }

// mark is the key of the hook that a command has passed.
type mark struct{}

func within(ctx context.Context, h *Hook) bool { return ctx.Value(mark{}) == h }

// judge classifies the error of a command. [policy.NotRun] leaves it to the pipeline.
func (h *Hook) judge(ctx context.Context, cmd redis.Cmder, err error) (policy.Kind, error) {
	if err == nil {
		return policy.Success, nil
	}
	err = withContext(ctx, err)
	if ctx.Err() == context.Canceled {
		return policy.NotRun, err
	}
	if err != redis.Nil && h.cfg.Classify != nil { //nolint:errorlint // as go-redis has it
		if k := h.cfg.Classify(cmd, err); k != policy.NotRun && k < policy.NumKinds {
			return k, err
		}
	}
	if k := h.p.Classify(ctx, err).Kind; k != policy.Failure {
		return k, err
	}
	if k := KindOf(err); k != policy.NotRun {
		return k, err
	}
	return policy.Failure, err
}

// settle tells the outcome of an attempt that did not succeed. One that must not be repeated
// and may have run says so by its pushback.
func (x *exchange) settle(at *policy.Attempt, kind policy.Kind, repeatable bool) {
	if kind == policy.NotRun {
		return
	}
	pushback := time.Duration(0)
	if !repeatable && rpc.MayChange(kind) {
		pushback = -1
	}
	at.SetOutcome(kind, pushback)
}

// reply returns what an attempt hands to the call.
func (x *exchange) reply(r reply, kind policy.Kind, err error) (any, error) {
	if !x.detached {
		r.cmd, r.cmds = nil, nil
	}
	if kind == policy.Success {
		r.err, err = err, nil
	}
	return r, err
}

// call returns what the pipeline is told about a command or a pipeline of them, and whether that
// may reach the server more than once. What blocks is not hedged: it is not slow, it waits.
func (h *Hook) call(ctx context.Context, blocks bool, cmds ...redis.Cmder) (call *policy.Call, again bool) {
	said := policy.CallFrom(ctx)
	never := h.cfg.ClientRetries || slices.ContainsFunc(cmds, borrows)
	again = said.Idempotent || all(cmds, func(c redis.Cmder) bool {
		name := c.Name()
		return h.cfg.Idempotent(c) || name == "multi" || name == "exec" || name == "asking"
	})
	if said == (policy.Call{}) {
		switch {
		case never:
			return &once, again
		case again && !blocks:
			return &repeatable, again
		}
		return &plain, again
	}
	own := said // said itself must not escape
	own.Idempotent = again && !never && !blocks
	own.NoRetry = said.NoRetry || never
	return &own, again
}

// The calls of nearly all commands: whose context says nothing about them. They are shared and
// never change.
var (
	plain      policy.Call
	once       = policy.Call{NoRetry: true}
	repeatable = policy.Call{Idempotent: true}
)

func clones(cmds []redis.Cmder) []redis.Cmder {
	all := make([]redis.Cmder, len(cmds))
	for i, c := range cmds {
		all[i] = c.Clone()
	}
	return all
}

func all(cmds []redis.Cmder, is func(redis.Cmder) bool) bool {
	for _, c := range cmds {
		if !is(c) {
			return false
		}
	}
	return true
}
