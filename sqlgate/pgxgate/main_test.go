package pgxgate_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/sqlgate/internal/testutil/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
