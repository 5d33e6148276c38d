//go:build !race

package demo_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
)

// stalls records when this process did not get the processor although it had
// something to do. That is the doing of neither world, and holds up both.
type stalls struct {
	list []stall
}

type stall struct{ from, length time.Duration }

func (s *stalls) watch(ctx context.Context, begin time.Time) {
	const step = 5 * time.Millisecond
	for ctx.Err() == nil {
		last := time.Now()
		time.Sleep(step)
		if over := time.Since(last) - step; over > time.Millisecond {
			s.list = append(s.list, stall{from: last.Sub(begin), length: over})
		}
	}
}

// stalled sums up the stalls of a phase: the longest, and the sum of those that are
// long enough to make a call fail.
type stalled struct{ longest, sum time.Duration }

func (s *stalls) within(ph demo.PhaseSpan) (sum stalled) {
	for _, x := range s.list {
		if at := x.from.Seconds(); at >= ph.From-0.5 && at <= ph.To+0.5 {
			sum.longest = max(sum.longest, x.length)
			if x.length > 50*time.Millisecond {
				sum.sum += x.length
			}
		}
	}
	return sum
}

// awaitCalm returns when the machine has given this process the processor whenever it
// wanted it for half a second, but after 30 s in any case: other packages are tested
// at the same time.
func awaitCalm() {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		var s stalls
		s.watch(ctx, time.Now())
		cancel()
		if s.within(demo.PhaseSpan{}).longest < 10*time.Millisecond {
			return
		}
	}
}

// stateAt is what /metrics says about the stock dependency's breaker.
type stateAt struct {
	at     time.Duration // in the time of the script, about
	state  string        // the one that is 1
	opened float64
}

// scrape reads the breaker's state from /metrics.
func scrape(ctx context.Context, url string) (s stateAt, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return s, err
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return s, err
	}
	for _, m := range families["breakwater_breaker_state"].GetMetric() {
		if label(m, "dependency") == "inventory" && m.GetGauge().GetValue() == 1 {
			if s.state != "" {
				return s, fmt.Errorf("the breaker is both %s and %s", s.state, label(m, "state"))
			}
			s.state = label(m, "state")
		}
	}
	for _, m := range families["breakwater_breaker_opened_total"].GetMetric() {
		if label(m, "dependency") == "inventory" {
			s.opened = m.GetCounter().GetValue()
		}
	}
	return s, nil
}

func label(m *dto.Metric, name string) string {
	i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name })
	if i < 0 {
		return ""
	}
	return m.GetLabel()[i].GetValue()
}
