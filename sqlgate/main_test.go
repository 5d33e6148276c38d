package sqlgate_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
)

const (
	second = time.Second
	hour   = time.Hour
)

func TestMain(m *testing.M) { pgtest.Main(m) }
