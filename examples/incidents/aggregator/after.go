package aggregator

import (
	"context"
	_ "embed"
	"time"

	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

//go:embed breakwater.yaml
var afterYAML []byte

// region after

// after is the platform with a pipeline for the requests that come in, and one for the
// database, as breakwater.yaml sets them up.
type after struct {
	db                 *database
	requests, database *policy.Pipeline
	hot                *stale.Cache[string]
}

func newAfter(db *database, pipelines map[string]*policy.Pipeline) (*after, error) {
	a := &after{db: db, requests: pipelines["aggregate"], database: pipelines["database"]}
	hot, err := stale.New(a.database, stale.Config[string]{Fresh: 10 * time.Second, MaxAge: time.Minute})
	a.hot = hot
	return a, err
}

func (a *after) aggregate(ctx context.Context, shop string) error {
	ctx = policy.WithCall(ctx, policy.Call{Key: shop}) // what the limit of each shop counts by
	return policy.Run(ctx, a.requests, func(ctx context.Context) error {
		return policy.Run(ctx, a.database, a.db.query)
	})
}

// cached reads what many ask for. One of them asks the database, the others get what there
// was before.
func (a *after) cached(ctx context.Context, key string) error {
	_, err := a.hot.Get(ctx, key, func(ctx context.Context) (string, error) {
		return "figures", a.db.query(ctx)
	})
	return err
}

// endregion
