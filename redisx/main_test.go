package redisx_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // a line for each connection that fails
	goleak.VerifyTestMain(m)
}
