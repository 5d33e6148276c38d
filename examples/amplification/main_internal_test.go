package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/retry"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		budget retry.BudgetSource
		tell   marks
		want   []int // by the number of layers, from 1
	}{
		{"no budget multiplies", retry.NoBudget{}, silent, []int{3000, 9000, 27000}},
		{"a budget adds its share", retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}, silent, []int{1100, 1210, 1331}},
		{"and the reserve of its window", retry.BudgetConfig{}, silent, []int{1300, 1660, 2092}},
		{"a marked request is not retried below", retry.NoBudget{}, request, []int{3000, 5000, 7000}},
		{"and a marked response not above", retry.NoBudget{}, both, []int{3000, 3000, 3000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i, want := range tt.want {
				got, err := load(i+1, tt.budget, tt.tell)
				require.NoError(t, err)
				assert.Equal(t, want, got, "%d layers", i+1)
			}
		})
	}
}
