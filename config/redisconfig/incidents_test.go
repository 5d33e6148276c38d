package redisconfig_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

// The configuration before each incident is caught, by the rules that it has taught; the
// one after it is clean, or says why a finding may stand.
func TestIncidentConfigurations(t *testing.T) {
	t.Parallel()
	clients := map[string]redis.UniversalClient{"limits": client(t, "127.0.0.1:1")}
	for name, caught := range map[string][]string{
		"captcha":    {"BW001", "BW013"},
		"aggregator": {"BW001", "BW014", "BW017", "BW019", "BW023"},
		"ask":        {"BW001", "BW006", "BW009", "BW013"},
		"orders":     {"BW009", "BW013", "BW014", "BW017", "BW018", "BW019"},
		"ocr":        {"BW001", "BW002", "BW007", "BW009", "BW021", "BW025"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("..", "..", "examples", "incidents", name)
			var found []string
			for _, f := range lint(t, filepath.Join(dir, "before.yaml")) {
				t.Log(f)
				assert.False(t, f.Waived)
				found = append(found, f.Rule.ID)
			}
			slices.Sort(found)
			assert.Subset(t, slices.Compact(found), caught)
			for _, f := range lint(t, filepath.Join(dir, "breakwater.yaml")) {
				assert.True(t, f.Waived, "%s", f)
			}
			s, err := config.Load(t.Context(), config.File(filepath.Join(dir, "breakwater.yaml")), program(clients))
			require.NoError(t, err)
			for _, d := range s.Dependencies {
				p, err := policy.New(d.Name, d.Specs()...)
				require.NoError(t, err)
				assert.Empty(t, p.Warnings())
				require.NoError(t, p.Close(t.Context()))
			}
		})
	}
}
