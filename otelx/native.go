package otelx

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

// The pipeline's histogram has eight buckets for each doubling, and so has a native
// histogram of schema 3; but those of the one are equally wide and those of the other
// grow. Each of the pipeline's buckets is counted in the native one that holds its
// middle, so a duration is shown at most half a bucket, 6.25 %, from where it was.
const (
	nativeSchema  = 3
	nativeZero    = 1e-6 // seconds; the pipeline's first bucket, below 1 µs
	bucketsPerTwo = 1 << nativeSchema
)

// nativeIndex holds the index of the native bucket for each of the pipeline's, but for
// the first.
var nativeIndex = func() (index [hist.Buckets]int) {
	for i := 1; i < hist.Buckets; i++ {
		middle := (hist.Upper(i-1).Seconds() + hist.Upper(i).Seconds()) / 2
		index[i] = int(math.Ceil(math.Log2(middle) * bucketsPerTwo))
	}
	return index
}()

// histogram is a metric with classic buckets and native ones.
type histogram struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair
	dist      policy.Latency
	counts    []uint64 // cumulative, of the classic buckets
	total     uint64
	bounds    []float64
	exemplars []exemplar
}

// Desc implements [prometheus.Metric].
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements [prometheus.Metric].
func (h *histogram) Write(m *dto.Metric) error {
	d := &dto.Histogram{SampleCount: new(h.total), SampleSum: new(h.dist.Sum.Seconds())}
	if len(h.bounds) > 0 {
		buckets := make([]dto.Bucket, len(h.bounds))
		d.Bucket = make([]*dto.Bucket, len(h.bounds), len(h.bounds)+1)
		for i := range buckets {
			buckets[i].UpperBound = &h.bounds[i]
			buckets[i].CumulativeCount = &h.counts[i]
			d.Bucket[i] = &buckets[i]
		}
	}
	h.native(d)
	h.addExemplars(d)
	m.Histogram, m.Label = d, h.labels
	return nil
}

// native fills in the native histogram: spans of buckets in a row, and their counts,
// each as the difference to the one before.
func (h *histogram) native(d *dto.Histogram) {
	d.Schema, d.ZeroThreshold, d.ZeroCount = new(int32(nativeSchema)), new(float64(nativeZero)), new(uint64(0))
	var span *dto.BucketSpan
	next, before := 0, int64(0) // the index after the last bucket, and its count
	for i, n := range h.dist.Counts {
		switch {
		case i == 0:
			d.ZeroCount = new(n)
			continue
		case n == 0:
			continue
		}
		index, count := nativeIndex[i], int64(n) //nolint:gosec // counts of what happened
		switch {
		case span != nil && index == next-1: // two of the pipeline's buckets in one
			d.PositiveDelta[len(d.PositiveDelta)-1] += count
			before += count
			continue
		case span == nil || index > next:
			span = &dto.BucketSpan{Offset: new(int32(index - next)), Length: new(uint32(0))} //nolint:gosec // of some hundred buckets
			d.PositiveSpan = append(d.PositiveSpan, span)
		}
		*span.Length++
		d.PositiveDelta = append(d.PositiveDelta, count-before)
		next, before = index+1, count
	}
	if len(d.PositiveSpan) == 0 && d.GetZeroCount() == 0 {
		// An empty native histogram is told from a classic one by an empty span.
		d.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
}

// addExemplars gives each classic bucket the latest exemplar that is in it, and all to
// the native histogram.
func (h *histogram) addExemplars(d *dto.Histogram) {
	for i := range h.exemplars {
		e := &h.exemplars[i]
		x := e.proto()
		d.Exemplars = append(d.Exemplars, x)
		at := 0
		for at < len(h.bounds) && e.seconds > h.bounds[at] {
			at++
		}
		if at == len(d.Bucket) { // a bucket for +Inf, only where it has an exemplar
			d.Bucket = append(d.Bucket, &dto.Bucket{UpperBound: new(math.Inf(1)), CumulativeCount: new(h.total)})
		}
		if b := d.Bucket[at]; b.Exemplar == nil || b.Exemplar.GetTimestamp().AsTime().Before(e.when) {
			b.Exemplar = x
		}
	}
}
