package bulkhead

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

func TestBandOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		prio     policy.Priority
		want     band
		reserved bool
	}{
		{policy.PriorityCritical, 0, true},
		{policy.PriorityHigh, 1, true},
		{policy.PriorityNormal, 2, false},
		{policy.PriorityLow, 3, false},
		{math.MaxInt8, 0, true},
		{math.MinInt8, 3, false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, bandOf(tt.prio), "band of %d", tt.prio)
		assert.Equal(t, tt.reserved, bandOf(tt.prio).reserved(), "reserved of %d", tt.prio)
	}
}

// The queue against a slice in the order of arrival.
func TestQueueEqualsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue[int]
		var model []*entry[int]
		in := func(b band) (list []*entry[int]) {
			for _, e := range model {
				if e.band == b {
					list = append(list, e)
				}
			}
			return list
		}
		serial := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				serial++
				e := &entry[int]{of: serial, band: drawBand(t)}
				q.push(e)
				model = append(model, e)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					return // nothing to remove
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				q.remove(model[i])
				model = slices.Delete(model, i, i+1)
			},
			"": func(t *rapid.T) {
				var first, newest *entry[int]
				for b := bands - 1; b >= 0; b-- {
					if list := in(band(b)); len(list) > 0 {
						first, newest = list[0], list[len(list)-1]
					}
				}
				if q.len() != len(model) || q.first() != first || q.newest() != newest {
					t.Fatalf("len %d first %v newest %v, want %d %v %v", q.len(), q.first(), q.newest(), len(model), first, newest)
				}
				for b := range band(bands) {
					var least *entry[int]
					for o := b + 1; int(o) < bands; o++ {
						if list := in(o); len(list) > 0 {
							least = list[len(list)-1]
						}
					}
					if q.least(b) != least || q.lower(b) != (least != nil) {
						t.Fatalf("least(%d) = %v, lower %v, want %v", b, q.least(b), q.lower(b), least)
					}
				}
			},
		})
	})
}

func TestStandingQueue(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	const target, interval = 5 * time.Millisecond, 100 * time.Millisecond
	steps := []struct {
		at         time.Duration
		fill       bool // the queue has been empty, and no longer is
		overloaded bool
	}{
		{at: 0, fill: true},
		{at: interval - 1},
		{at: interval, overloaded: true},
		{at: time.Hour, overloaded: true},
		{at: time.Hour + 1, fill: true},
		{at: time.Hour + interval},
		{at: time.Hour + interval + 1, overloaded: true},
		{at: time.Hour}, // time goes backwards: no harm
	}
	s := standing{cfg: CoDel{Target: target}.withDefaults()}
	off := standing{}
	for _, st := range steps {
		if st.fill {
			s.filled(at(st.at))
			off.filled(at(st.at))
		}
		assert.Equal(t, st.overloaded, s.overloaded(at(st.at)), "overloaded at %s", st.at)
		assert.False(t, off.overloaded(at(st.at)), "off is off")
	}
	assert.False(t, s.stale(start, at(target)), "as long as Target is allowed")
	assert.True(t, s.stale(start, at(target+1)))
}
