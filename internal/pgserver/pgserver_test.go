package pgserver_test

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/internal/pgserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerComesAndGoes(t *testing.T) {
	t.Parallel()
	s, err := pgserver.Start(t.Context(), pgserver.Config{})
	if errors.Is(err, pgserver.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	require.Contains(t, s.DSN(), s.Addr())
	connect := func() error {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	require.NoError(t, connect())
	s.Kill()
	s.Kill()
	require.Error(t, connect())
	require.NoError(t, s.Restart(t.Context()), "on the same port, with the same data")
	require.NoError(t, connect())
}

func TestServerThatCannotStart(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"port": "none"}})
	if errors.Is(err, pgserver.ErrMissing) {
		t.Skip(err)
	}
	require.ErrorContains(t, err, "port", "its own words are part of the error")
}
