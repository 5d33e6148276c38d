package dashboard_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/dashboard"
)

// Without a console the page still says what is wrong with a configuration, and refuses
// what needs one. What it does with one is tested in package config.
func TestConfigurationWithoutConsole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, reg, _ := newDashboard(t, dashboard.Config{Actions: true, Authorize: ann}, bulkhead.Semaphore{Limit: 5})
		assert.Nil(t, read[dashboard.Overview](t, d, "/api/snapshot").Config, "none was ever loaded")
		reg.ConfigApplied("1 (load)")
		since := time.Now()
		time.Sleep(time.Minute)
		reg.ConfigRefused("2 (reload)", errors.Join(errors.New("a.yaml:1:2: x"), errors.Join(errors.New("a.yaml:3:4: y"))))
		refused := time.Now()
		time.Sleep(2 * time.Second)
		assert.Equal(t, &dashboard.ConfigState{
			Version: 1, Name: "1 (load)", Since: since.UnixMilli(), Applied: 1, Refused: 1,
			Faults: []string{"a.yaml:1:2: x", "a.yaml:3:4: y"}, FaultAt: refused.UnixMilli(),
		}, read[dashboard.Overview](t, d, "/api/snapshot").Config)
		h := read[dashboard.ConfigHistory](t, d, "/api/config")
		assert.Empty(t, h.Versions)
		assert.Len(t, h.Config.Faults, 2)
		det := read[dashboard.Detail](t, d, "/api/dependency?name=inventory")
		assert.Nil(t, det.Settings)
		changes := read[dashboard.Events](t, d, "/api/events").Changes
		require.NotEmpty(t, changes)
		assert.Equal(t, "a configuration was refused, and nothing has changed: a.yaml:1:2: x (and 1 more)", changes[0].Words)
		for _, body := range []string{
			`{"action":"rollback","version":1,"why":"x"}`,
			`{"dependency":"inventory","policy":"bulkhead","action":"change","texts":{"Limit":"3"},"seconds":60,"why":"x"}`,
		} {
			w := post(t, d, "/api/act", body)
			assert.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
		}
		assert.Equal(t, http.StatusOK, post(t, d, "/api/act", `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":3},"seconds":60,"why":"x"}`).Code)
		reg.ConfigApplied("2 (reload)")
		assert.Empty(t, read[dashboard.Overview](t, d, "/api/snapshot").Config.Faults)
		d.Close()
	})
}
