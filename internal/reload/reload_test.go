package reload_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/reload"
)

type config struct {
	Name  string
	Limit int
	Sub   struct{ Deep []int }
	own   int
}

func TestFixed(t *testing.T) {
	t.Parallel()
	base := config{Name: "a", Limit: 1, own: 1}
	require.NoError(t, reload.Fixed(base, config{Name: "a", Limit: 2, own: 2}, "Limit"))
	require.EqualError(t, reload.Fixed(base, config{Name: "a", Limit: 2}), "Limit cannot be changed in place")
	deep := base
	deep.Sub.Deep = []int{1}
	require.EqualError(t, reload.Fixed(base, deep, "Limit"), "Sub cannot be changed in place")
	assert.ErrorContains(t, reload.Fixed(base, "x"), "string")
}
