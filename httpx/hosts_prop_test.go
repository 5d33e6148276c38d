package httpx_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// Requests to any hosts at any times: a pipeline stays while its host is used, is gone one
// and a half times IdleAfter later, and there are never more than MaxHosts.
func TestHostsProperties(t *testing.T) {
	t.Parallel()
	type step struct {
		wait time.Duration
		host int
	}
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(rt, "MaxHosts")
		idle := time.Duration(rapid.IntRange(10, 1000).Draw(rt, "IdleAfter")) * time.Millisecond
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				wait: time.Duration(rapid.Float64Range(0, 2).Draw(rt, "wait") * float64(idle)),
				host: rapid.IntRange(0, 5).Draw(rt, "host"),
			}
		}), 1, 40).Draw(rt, "steps")
		var fault string
		synctest.Test(t, func(t *testing.T) {
			var reg policy.Registry
			hosts, tr := perHost(t, &reg, httpx.HostsConfig{MaxHosts: most, IdleAfter: idle}, byHost)
			last := map[string]time.Time{}          // use of each host that has a pipeline
			before := map[string]*policy.Pipeline{} // it
			for i, s := range steps {
				time.Sleep(s.wait)
				synctest.Wait()
				now := time.Now()
				for name, used := range last {
					p, ok := reg.Get(name)
					switch d := now.Sub(used); {
					case d < idle && (!ok || p != before[name]):
						fault = fmt.Sprintf("step %d: %s is gone after %s", i, name, d)
					case d > idle+idle/2 && ok:
						fault = fmt.Sprintf("step %d: %s is there after %s", i, name, d)
					}
					if !ok {
						delete(last, name)
						delete(before, name)
					}
				}
				name := "host:" + strconv.Itoa(s.host)
				_, had := last[name]
				room := len(last) < most
				overflowed := hosts.Snapshot().Overflowed
				if err := ask(t, tr, strconv.Itoa(s.host)); err != nil {
					fault = err.Error()
				}
				p, ok := reg.Get(name)
				if ok != (had || room) || (hosts.Snapshot().Overflowed == overflowed) != ok {
					fault = fmt.Sprintf("step %d: %s: had %t, room %t, has %t", i, name, had, room, ok)
				}
				if ok {
					last[name], before[name] = now, p
				}
				if own := hosts.Snapshot().Own; own != len(last) || own > most {
					fault = fmt.Sprintf("step %d: %d hosts, want %d", i, own, len(last))
				}
			}
			if err := hosts.Close(t.Context()); err != nil {
				fault = err.Error()
			}
			if left := names(&reg); len(left) > 0 {
				fault = fmt.Sprint("left: ", left)
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}
