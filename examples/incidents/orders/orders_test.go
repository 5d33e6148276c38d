package orders_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay/replaytest"
	"github.com/breakwater-go/breakwater/examples/incidents/orders"
)

func TestIncidentOrders(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, orders.Replay)
}
