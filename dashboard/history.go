package dashboard

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// The history of a pipeline is a table of numbers: a row for each second of the last
// two minutes, and one for each five seconds since fifteen minutes ago.
const (
	sampleEvery = time.Second
	fineRows    = 120
	coarseStep  = 5 // samples in a coarse row
	coarseRows  = 184
	allRows     = fineRows + coarseRows
)

// The columns that every pipeline has. Behind them are three for each policy.
const (
	colCalls   = iota // finished, per second
	colKinds          // attempts by outcome, per second
	colRetries = colKinds + int(policy.NumKinds)
	colReasons = colRetries + 1 // refusals by reason, per second
	colServed  = colReasons + int(policy.NumReasons)
	colP50     = colServed + 1 // milliseconds
	colP95     = colP50 + 1
	colP99     = colP95 + 1
	colHeat    = colP99 + 1 // attempts by duration, per second
	colLevel   = colHeat + heatBands
	colState   = colLevel + 1 // of the breaker that is worst off, see stateCode
	colFailure = colState + 1 // ratios of its window
	colSlow    = colFailure + 1
	colFlight  = colSlow + 1 // in flight, of the fullest bulkhead
	colLimit   = colFlight + 1
	colWaiting = colLimit + 1
	colTokens  = colWaiting + 1 // of the scarcest limiter
	colBurst   = colTokens + 1
	colBudget  = colBurst + 1 // retries left
	ownColumns = colBudget + 1

	policyColumns = 3 // refusals per second, and two figures that depend on its kind
	keptPolicies  = 12
)

// heatBands is the number of bands of the picture of latencies: each is twice as wide as
// the one before, from 1 ms to over 65 s, and the first takes all that is below.
const heatBands = 18

// heatUpper returns the upper edge of a band; the last has none.
func heatUpper(i int) time.Duration { return time.Millisecond << i }

// How the rows of five seconds are made of those of one.
type folding uint8

const (
	foldMean folding = iota
	foldMax
	foldMin
)

func foldingOf(col int) folding {
	switch {
	case col >= colP50 && col <= colP99, col == colLevel, col == colState,
		col >= colFailure && col <= colWaiting, col == colBurst:
		return foldMax
	case col == colTokens, col == colBudget:
		return foldMin
	case col >= ownColumns && (col-ownColumns)%policyColumns != 0:
		return foldMax
	default:
		return foldMean
	}
}

// timeline holds when the samples were taken, which is the same for all pipelines.
type timeline struct {
	taken int // samples so far
	fine  [fineRows]int64
	thick [coarseRows]int64 // of the last sample in each
}

// mark begins a sample and returns the row it goes into.
func (t *timeline) mark(now time.Time) (row int) {
	row = t.taken % fineRows
	t.fine[row] = now.UnixMilli()
	t.taken++
	if t.taken%coarseStep == 0 {
		t.thick[(t.taken/coarseStep-1)%coarseRows] = now.UnixMilli()
	}
	return row
}

// table is the history of one pipeline.
type table struct {
	stride int
	cells  []float32
	since  int // number of the first sample in it
}

func tableBytes(policies int) int {
	return allRows * (ownColumns + policyColumns*min(policies, keptPolicies)) * 4
}

func newTable(policies, since int) *table {
	stride := ownColumns + policyColumns*min(policies, keptPolicies)
	t := &table{stride: stride, cells: make([]float32, allRows*stride), since: since}
	return t
}

func (t *table) row(i int) []float32 { return t.cells[i*t.stride : (i+1)*t.stride] }

// put keeps the sample with the given number, the first being 0.
func (t *table) put(n int, cells []float32) {
	copy(t.row(n%fineRows), cells)
	if (n+1)%coarseStep != 0 {
		return
	}
	dst := t.row(fineRows + (n/coarseStep)%coarseRows)
	for col := range dst {
		dst[col] = t.fold(n, col)
	}
}

func (t *table) fold(n, col int) float32 {
	how := foldingOf(col)
	var sum float32
	count := float32(0)
	for i := max(n-coarseStep+1, t.since); i <= n; i++ {
		v := t.row(i % fineRows)[col]
		if v != v { //nolint:gocritic // NaN: nothing is known
			continue
		}
		switch {
		case count == 0:
			sum = v
		case how == foldMax:
			sum = max(sum, v)
		case how == foldMin:
			sum = min(sum, v)
		default:
			sum += v
		}
		count++
	}
	switch {
	case count == 0:
		return float32(math.NaN())
	case how == foldMean:
		return sum / count
	}
	return sum
}

// spot is a row of the history and the time it is from.
type spot struct {
	at  int64 // milliseconds since 1970
	row int
}

// spots lists the rows of a table that hold something, oldest first: coarse ones, then
// fine ones.
func (t *timeline) spots(since int) []spot {
	var list []spot
	firstFine := max(t.taken-fineRows, since)
	// A coarse row that reaches into the fine part would say the same again.
	last := t.taken / coarseStep
	for k := max(last-coarseRows, 0); k < last; k++ {
		if end := (k + 1) * coarseStep; end <= firstFine && k*coarseStep+coarseStep > since {
			list = append(list, spot{t.thick[k%coarseRows], fineRows + k%coarseRows})
		}
	}
	for n := max(firstFine, 0); n < t.taken; n++ {
		list = append(list, spot{t.fine[n%fineRows], n % fineRows})
	}
	return list
}
