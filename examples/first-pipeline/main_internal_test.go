package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	inventory := httptest.NewServer(newInventory())
	defer inventory.Close()
	handler, err := newShop(inventory.URL)
	require.NoError(t, err)
	shop := httptest.NewServer(handler)
	defer shop.Close()

	send := func(method, url string) (status int, retryAfter, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, resp.Header.Get("Retry-After"), string(b)
	}
	state := func(name string) string {
		return `breakwater_breaker_state{dependency="inventory",policy="breaker",state="` + name + `"} 1`
	}

	_, _, metrics := send(http.MethodGet, shop.URL+"/metrics")
	assert.Contains(t, metrics, state("closed"), "before the first call")
	status, _, body := send(http.MethodGet, shop.URL+"/stock/apple")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "42 of apple\n", body)

	send(http.MethodPost, inventory.URL+"/break")
	status, _, body = send(http.MethodGet, shop.URL+"/stock/apple")
	assert.Equal(t, http.StatusInternalServerError, status, "after three attempts, the service's own answer")
	assert.Contains(t, body, "the database is away")
	status, _, body = send(http.MethodGet, shop.URL+"/stock/apple")
	assert.Equal(t, http.StatusServiceUnavailable, status, "the fourth failure of five calls opens the breaker, which refuses the retry")
	assert.Equal(t, "refused: open\n", body)

	status, retryAfter, body := send(http.MethodGet, shop.URL+"/stock/apple")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "10", retryAfter)
	assert.Equal(t, "refused: open\n", body)
	_, _, metrics = send(http.MethodGet, shop.URL+"/metrics")
	assert.Contains(t, metrics, state("open"))
}
