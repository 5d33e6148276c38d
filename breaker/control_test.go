package breaker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func TestCommanderOfKey(t *testing.T) {
	t.Parallel()
	k, err := breaker.NewKeyed("", breaker.Keyed{})
	require.NoError(t, err)
	_, ok := k.Commander("eu")
	assert.False(t, ok)
	assert.Zero(t, k.Snapshot(time.Now()).Breaker.Keys, "asking makes no key")
	k.Get("eu")
	c, ok := k.Commander("eu")
	require.True(t, ok)
	c.ForceOpen("ann: maintenance", time.Minute)
	assert.Equal(t, breaker.ForcedOpen, k.Get("eu").State())

	p, err := policy.New("api", k)
	require.NoError(t, err)
	controls := p.Controls()
	require.Len(t, controls, 1)
	assert.NotNil(t, controls[0].Keyed)
	assert.Nil(t, controls[0].Commander)
}
