package redisx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
)

// KindOf says what an error of go-redis means to a pipeline:
//
//   - nil and [redis.Nil] are a [policy.Success]
//   - LOADING, BUSY, TRYAGAIN, OOM and "max number of clients" are [policy.Busy]: the server
//     says that it cannot now, and has not run the command
//   - CLUSTERDOWN, MASTERDOWN, READONLY, MISCONF and NOREPLICAS are a [policy.Failure]: a
//     failover is under way, or the server cannot write
//   - MOVED and ASK are [policy.Permanent]: an answer of a healthy server. A cluster client
//     follows them by itself; any other should not have been pointed at a cluster
//   - all other errors of the server are [policy.Permanent] too, an answer about the command
//     that another attempt would get again: WRONGTYPE, NOAUTH, NOPERM, EXECABORT, a
//     transaction that was not executed ([redis.TxFailedErr])
//   - [redis.ErrPoolTimeout], [redis.ErrPoolExhausted] and [redis.ErrClosed] are
//     [policy.Canceled]: the server was not asked. A [Hook] makes refusals of the first two
//   - anything else is [policy.NotRun]: no error of Redis, and left to [policy.Classify]
func KindOf(err error) policy.Kind {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return policy.Success
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return policy.Canceled
	case answers(err, busy):
		return policy.Busy
	case answers(err, failing):
		return policy.Failure
	}
	if _, ok := errors.AsType[redis.Error](err); ok {
		return policy.Permanent
	}
	return policy.NotRun
}

var (
	busy    = []string{"LOADING", "BUSY ", "TRYAGAIN", "OOM", "max number of clients"}
	failing = []string{"CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS"}

	// early are those of which not even a script has run a part: the server looks at them
	// before anything else.
	early = []string{"LOADING", "BUSY ", "TRYAGAIN", "max number of clients", "CLUSTERDOWN", "MASTERDOWN"}
)

// answers reports whether an error is one of the server's with one of the prefixes.
func answers(err error, prefixes []string) bool {
	re, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := strings.TrimPrefix(re.Error(), "ERR ")
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// notRun reports whether the server has certainly not run a command, by the error that it has: no
// connection could be made, or it was refused before it ran.
func notRun(cmd redis.Cmder, err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	if scripts[cmd.Name()] {
		return answers(err, early)
	}
	return answers(err, busy) || answers(err, failing)
}

// withContext makes an error match that of the context which is to blame for it. go-redis
// does not look at the end of a context while it waits for an answer; it gives a connection
// the deadline and reports a timeout of the network.
func withContext(ctx context.Context, err error) error {
	is := ctx.Err()
	if is == nil {
		deadline, ok := ctx.Deadline()
		if !ok || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(deadline) {
			return err
		}
		is = context.DeadlineExceeded // the network's timer was earlier than the context's
	}
	if errors.Is(err, is) || KindOf(err) != policy.NotRun {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(is, cause) {
		return fmt.Errorf("%w: %w: %w", is, cause, err)
	}
	return fmt.Errorf("%w: %w", is, err)
}
