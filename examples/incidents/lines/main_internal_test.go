package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/examples/incidents"
)

func TestRun(t *testing.T) {
	t.Parallel()
	ask, err := incidents.Find("ask")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, run(&b, []incidents.Incident{ask}))
	var got struct {
		Pictures []struct {
			Name   string
			Charts []struct {
				Before, After []struct {
					Name string
					Y    []float64
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Len(t, got.Pictures, 1)
	assert.Equal(t, "incident-ask", got.Pictures[0].Name)
	require.Len(t, got.Pictures[0].Charts, 4)
	for _, c := range got.Pictures[0].Charts {
		assert.NotEmpty(t, c.Before[0].Y)
		assert.NotEmpty(t, c.After[0].Y)
	}
}
