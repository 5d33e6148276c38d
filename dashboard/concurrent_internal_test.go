package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func TestEverythingAtOnceConcurrentSafe(t *testing.T) {
	t.Parallel()
	reg := fleet(t, 4)
	d, err := newDashboard(reg, Config{Actions: true, Authorize: func(*http.Request) (Viewer, bool) {
		return Viewer{Name: "ann", Act: true, Private: true}, true
	}})
	require.NoError(t, err)
	defer d.Close()
	names := []string{}
	for p := range reg.All() {
		names = append(names, p.Name())
	}
	serve := func(method, path, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(actHeader, "1")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 30 {
				name := names[i%len(names)]
				for _, path := range []string{"snapshot", "events?name=" + name, "dependency?name=" + name, "history?name=" + name, "export", "snapshot?at=1"} {
					serve(http.MethodGet, "/api/"+path, "")
				}
				serve(http.MethodPost, "/api/act", fmt.Sprintf(`{"dependency":%q,"policy":"bulkhead","action":"set","values":{"Limit":%d},"seconds":60,"why":"x"}`, name, 2+i+g))
				serve(http.MethodPost, "/api/act", fmt.Sprintf(`{"dependency":%q,"policy":"breaker","action":"force_open","seconds":60,"why":"x"}`, name))
				serve(http.MethodPost, "/api/act", fmt.Sprintf(`{"dependency":%q,"policy":"ratelimit","action":"shadow","seconds":60,"why":"x"}`, name))
				serve(http.MethodPost, "/api/undo", fmt.Sprintf(`{"id":%d,"why":"x"}`, i*3+g))
			}
		})
		wg.Go(func() {
			for i := range 500 {
				p, _ := reg.Get(names[i%len(names)])
				err := errLong
				if i%2 == 0 {
					err = nil
				}
				_ = policy.Run(t.Context(), p, func(context.Context) error { return err })
			}
		})
	}
	wg.Go(func() {
		now := time.Now()
		for i := range 100 {
			now = now.Add(time.Second)
			d.hand.expire(now)
			d.sampler.sample(now)
			if i%10 == 0 {
				_, err := reg.New(fmt.Sprintf("new-%d", i), breaker.Config{})
				assert.NoError(t, err)
			}
		}
	})
	wg.Wait()
	d.Close()
	for _, name := range names {
		p, _ := reg.Get(name)
		for _, c := range p.Controls() {
			assert.False(t, c.Shadow, "Close has taken back what was set by hand")
			if c.Name == "bulkhead" {
				assert.InDelta(t, 8, c.Tunable.Settings()[0].Value, 0, name)
			}
		}
	}
}

// TestHostileKeys: keys and errors come from outside and may be anything.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	reg := new(policy.Registry)
	p, err := reg.New("inventory", breaker.Keyed{})
	require.NoError(t, err)
	d, err := newDashboard(reg, Config{})
	require.NoError(t, err)
	defer d.Close()
	for _, key := range []string{strings.Repeat("\xff\x00<script>alert(1)</script>\u202E", 500), "\xed\xa0\x80", strings.Repeat("é", 10<<10)} {
		j := d.journal
		j.paces.Clear() // each is to be kept
		ctx := policy.WithCall(t.Context(), policy.Call{Key: key})
		_ = policy.Run(ctx, p, func(context.Context) error { return errors.New(key) })
		in := j.incidents(j.failures, "inventory", Viewer{Private: true})[0]
		for _, text := range []string{in.Key, in.Error} {
			assert.True(t, utf8.ValidString(text))
			assert.LessOrEqual(t, len(text), 3*(maxText+1))
			assert.NotContains(t, text, "\x00")
			assert.NotContains(t, text, "\u202E")
		}
	}
}
