package etcdsource_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server leaves these behind when it closes.
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/embed.(*Etcd).Close"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}
