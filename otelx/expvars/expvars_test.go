package expvars_test

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/otelx/expvars"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublish(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	require.Nil(t, expvar.Get("test"))
	require.NoError(t, expvars.Publish(&reg, "test"))
	p, err := reg.New("dep", breaker.Config{}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1))})
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)

	var got map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(expvar.Get("test").String()), &got))
	assert.InDelta(t, 1, got["dep"]["calls{outcome=success}"], 0)
	assert.InDelta(t, 1, got["dep"]["breaker.state{policy=breaker,state=closed}"], 0)
	assert.InDelta(t, 1, got["dep"]["attempt.duration.count"], 0)
	assert.Equal(t, "+Inf", got["dep"]["ratelimit.rate{policy=ratelimit}"])
	assert.Contains(t, got[""], "snapshot.failures")
	assert.Len(t, got["dep"], len(otelx.Values(&reg)["dep"]))

	require.ErrorContains(t, expvars.Publish(&reg, "test"), `there is a variable "test" already`)
	require.ErrorContains(t, expvars.Publish(&reg, ""), "expvars.name: want a name")
	require.ErrorContains(t, expvars.Publish(nil, "other"), "expvars.reg: want a registry")
}

func ExamplePublish() {
	var registry policy.Registry
	if err := expvars.Publish(&registry, "breakwater"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(expvar.Get("breakwater"))
	// Output:
	// {"":{"snapshot.failures":0}}
}
