package pgxgate_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/internal/pgserver"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/sqlgate"
	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
	"github.com/breakwater-go/breakwater/sqlgate/pgxgate"
)

// open returns a guarded pool of a server; line may be nil.
func open(tb testing.TB, s *pgserver.Server, conns int32, line *pgtest.Line, p *policy.Pipeline, cfg sqlgate.Config) *pgxgate.Pool {
	tb.Helper()
	pc, err := pgxpool.ParseConfig(s.DSN())
	require.NoError(tb, err)
	pc.MaxConns = conns
	if line != nil {
		pc.ConnConfig.DialFunc = line.Dial
	}
	inner, err := pgxpool.NewWithConfig(tb.Context(), pc)
	require.NoError(tb, err)
	pool, err := pgxgate.Wrap(inner, p, cfg)
	require.NoError(tb, err)
	return pool
}

// pipe returns a pipeline with a bulkhead and a breaker that opens for nothing.
func pipe(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("db", append([]policy.Policy{
		bulkhead.Semaphore{Limit: 1000}, breaker.Config{MinCalls: 1000, Window: time.Hour},
	}, policies...)...)
	require.NoError(tb, err)
	return p
}

// inFlight returns the permits that are out: of the pipeline's bulkhead and of the pool.
func inFlight(p *policy.Pipeline) (n int) {
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			n += ps.Bulkhead.InFlight
		}
	}
	return n
}

func failures(p *policy.Pipeline) (calls, failures uint64) {
	for _, ps := range p.Snapshot().Policies {
		if b := ps.Breaker; b != nil {
			return b.Calls, b.Failures
		}
	}
	return 0, 0
}
