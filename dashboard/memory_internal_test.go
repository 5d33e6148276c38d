package dashboard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

var errLong = errors.New("an error that says a great deal about what went wrong, and where, and for whom, and goes on about it for longer than anybody would want to read")

// fleet returns a registry of n pipelines of six policies each.
func fleet(tb testing.TB, n int) *policy.Registry {
	tb.Helper()
	reg := new(policy.Registry)
	for i := range n {
		_, err := reg.New(fmt.Sprintf("group-%d/dependency-%03d", i%10, i),
			fallback.Value(struct{}{}), policy.Timeouts{Attempt: time.Minute},
			retry.Config{MaxAttempts: 2, BaseDelay: time.Nanosecond, MaxDelay: time.Nanosecond, Budget: retry.BudgetConfig{Ratio: 0.1}},
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e6)}, bulkhead.Semaphore{Limit: 8}, breaker.Config{})
		require.NoError(tb, err)
	}
	return reg
}

// TestMemoryIsBounded fills everything that is kept of 500 pipelines.
func TestMemoryIsBounded(t *testing.T) { //nolint:paralleltest // it measures the heap
	const most = 64 << 20
	reg := fleet(t, 500)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	d, err := newDashboard(reg, Config{})
	require.NoError(t, err)
	defer d.Close()
	now := time.Now()
	for i := range 40 {
		if i%8 == 0 {
			for p := range reg.All() {
				_ = policy.Run(t.Context(), p, func(context.Context) error { return errLong })
			}
		}
		now = now.Add(time.Second)
		d.sampler.sample(now)
	}
	full := Incident{Kind: "failure", Words: string(make([]byte, maxText)), Error: string(make([]byte, maxText)), Trace: string(make([]byte, 64))}
	for p := range reg.All() {
		for _, kept := range []map[string]*ring[Incident]{d.journal.refusals, d.journal.failures} {
			if kept[p.Name()] == nil {
				kept[p.Name()] = new(ring[Incident])
			}
			for range 2 * keptIncident {
				in := full
				in.Words, in.Error, in.Trace = string([]byte(full.Words)), string([]byte(full.Error)), string([]byte(full.Trace))
				kept[p.Name()].add(in, keptIncident)
			}
		}
	}
	for i := range 2 * keptChanges {
		d.journal.note(Change{Dependency: "inventory", Policy: "breaker", Words: fmt.Sprint(i, string(make([]byte, maxText)))})
	}
	for range 2 * keptAudit {
		d.hand.refusedEntry(AuditEntry{Who: string(make([]byte, maxText)), Why: string(make([]byte, maxReason))})
	}
	used := heap() - before
	t.Logf("%d pipelines: %.1f MiB, of which %.1f MiB are tables", 500, float64(used)/(1<<20), float64(d.cfg.MaxHistoryBytes-d.sampler.room)/(1<<20))
	assert.Less(t, used, uint64(most))
	for _, r := range d.sampler.order {
		require.NotNil(t, r.table, "every one of 500 has a history")
	}
	runtime.KeepAlive(reg)
}

// TestNoRoom: what does not fit is shown without a history.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	d, err := newDashboard(fleet(t, 40), Config{MaxHistoryBytes: leastHistory})
	require.NoError(t, err)
	defer d.Close()
	kept := 0
	for _, r := range d.sampler.order {
		if r.table != nil {
			kept++
		}
	}
	assert.Positive(t, kept)
	assert.Less(t, kept, 40)
	o := d.overview(Viewer{}, 0)
	assert.Len(t, o.Cards, 40)
	assert.Len(t, o.Sparks, kept)
	det, ok := d.detail(d.sampler.order[39].name, Viewer{})
	assert.True(t, ok)
	assert.False(t, det.Kept)
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		"<script>alert(1)</script>": "<script>alert(1)</script>",
		"a\x00b\x1b[31m":            "a\uFFFDb\uFFFD[31m",
		"\xff\xfe":                  "\uFFFD",
		"two\nlines":                "two lines",
		"right\u202Eto left":        "right\uFFFDto left",
		"éé":                        "éé",
	} {
		assert.Equal(t, want, clean(in, maxText), "%q", in)
	}
	long := clean(string(make([]byte, 10<<10)), 64)
	assert.LessOrEqual(t, len([]rune(long)), 65)
	assert.Equal(t, "aé…", clean("aéé", 4), "not within a character")
}

func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"no address": "no address",
		"GET http://u:p@host/path?q=1#f: refused":      "GET http://host/path?… refused",
		`Get "https://host/a?token=x": EOF`:            `Get "https://host/a?…": EOF`,
		"redis://:secret@10.0.0.1:6379/0 and pg://u@h": "redis://10.0.0.1:6379/0 and pg://h",
		"http://u:pa/ss@host/x":                        "http://host/x",
		"http://host/@handle":                          "http://host/@handle",
	} {
		got := withoutSecrets(in)
		assert.Equal(t, want, got)
		assert.NotContains(t, got, "secret")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("http://u:p@h/?x", 5)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = max(most%512, 0)
		got := clean(withoutSecrets(s), most)
		if len([]rune(got)) > most+1 {
			t.Fatalf("%q is longer than %d", got, most)
		}
		if clean(got, 4*len(got)+8) != got {
			t.Fatalf("%q changes when it is cleaned again", got)
		}
	})
}
