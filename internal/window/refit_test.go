package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/internal/window"
)

func TestRefit(t *testing.T) {
	t.Parallel()
	w := window.New(base, time.Second, 10)
	w.Record(at(50*ms), failed)
	w.Add(at(550*ms), 0)
	w.Record(at(650*ms), slow)
	for name, tt := range map[string]struct {
		length  time.Duration
		buckets int
		at      time.Duration
		want    counts
	}{
		"longer":               {time.Minute, 10, 0, counts{3, 1, 1}},
		"longer, much later":   {time.Minute, 10, 50 * time.Second, counts{3, 1, 1}},
		"longer, forgotten":    {time.Minute, 10, 61 * time.Second, counts{}},
		"shorter":              {200 * ms, 2, 0, counts{2, 0, 1}},
		"shorter, soon":        {200 * ms, 2, 100 * ms, counts{1, 0, 1}},
		"one bucket":           {time.Second, 1, 0, counts{3, 1, 1}},
		"more buckets":         {time.Second, 1000, 0, counts{3, 1, 1}},
		"more buckets, later":  {time.Second, 1000, 450 * ms, counts{2, 0, 1}},
		"as it was, forgotten": {time.Second, 10, 400 * ms, counts{2, 0, 1}},
	} {
		now := at(650 * ms)
		assert.Equal(t, tt.want, w.Refit(now, tt.length, tt.buckets, 0).Counts(now.Add(tt.at)), name)
	}
	armed := w.Refit(at(650*ms), time.Minute, 10, 4)
	assert.True(t, armed.Add(at(651*ms), 0), "the next call reaches the mark")
	assert.Equal(t, counts{3, 1, 1}, w.Counts(at(650*ms)), "the old one is as it was")
}

func TestRefitOfLast(t *testing.T) {
	t.Parallel()
	l := window.NewLast(4)
	for _, c := range []counts{failed, slow, failed} {
		l.Record(base, c)
		l.Add(base, 0)
	}
	assert.Equal(t, counts{4, 1, 1}, l.Counts(base))
	assert.Equal(t, counts{2, 1, 0}, l.Refit(2, 0).Counts(base), "the last two")
	grown := l.Refit(6, 0)
	assert.Equal(t, counts{4, 1, 1}, grown.Counts(base), "what was forgotten stays so")
	grown.Add(base, 0)
	grown.Add(base, 0)
	assert.Equal(t, counts{6, 1, 1}, grown.Counts(base))
	grown.Add(base, 0)
	assert.Equal(t, counts{6, 1, 0}, grown.Counts(base), "the slow one was the first of those")
	assert.True(t, l.Refit(6, 5).Add(base, 0), "the next call reaches the mark")
}

// A window of another shape holds what both, made from the start, would hold: everything
// that is younger than the shorter of the two, and nothing that is older than either
// allows.
func TestRefitNeitherLosesNorInvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shape := func(name string) (time.Duration, int) {
			return time.Duration(rapid.Int64Range(1, 2000).Draw(t, name+" length")) * ms, rapid.IntRange(1, 20).Draw(t, name+" buckets")
		}
		length, buckets := shape("old")
		w := window.New(base, length, buckets)
		now := time.Duration(0)
		var failures []time.Duration
		for range rapid.IntRange(0, 40).Draw(t, "calls") {
			now += time.Duration(rapid.Int64Range(0, 300).Draw(t, "gap")) * ms
			w.Record(at(now), failed)
			failures = append(failures, now)
		}
		now += time.Duration(rapid.Int64Range(0, 300).Draw(t, "gap")) * ms
		length2, buckets2 := shape("new")
		got := w.Refit(at(now), length2, buckets2, 0).Counts(at(now))
		least, most := uint64(0), uint64(0)
		for _, f := range failures {
			age := now - f
			if age < length-length/time.Duration(buckets) && age < length2-length2/time.Duration(buckets2) {
				least++
			}
			if age <= length && age <= length2+length/time.Duration(buckets) {
				most++
			}
		}
		if got.Calls != got.Failures || got.Calls < least || got.Calls > most {
			t.Fatalf("%+v: want %d to %d", got, least, most)
		}
	})
}
