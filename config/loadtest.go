package config

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LoadTest is a step of a load test: what the dependency did with so many calls at a time.
type LoadTest struct {
	Concurrency int
	Throughput  float64 // answered calls per second
	Latency     time.Duration
	P99         time.Duration
	Errors      float64 // share of calls that failed, in [0, 1]
}

// ReadLoadTest reads the steps of a load test from CSV with a header. The columns
// concurrency and throughput are needed; latency_ms, p99_ms and errors are used when they
// are there, and others are not looked at.
func ReadLoadTest(r io.Reader) ([]LoadTest, error) {
	rows := csv.NewReader(r)
	rows.TrimLeadingSpace = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("config: load test: %w", err)
	}
	column := map[string]int{}
	for i, name := range header {
		column[strings.ToLower(strings.TrimSpace(name))] = i
	}
	for _, name := range []string{"concurrency", "throughput"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("config: load test: there is no column %q: want concurrency, throughput and, if known, latency_ms, p99_ms, errors", name)
		}
	}
	var steps []LoadTest
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("config: load test: %w", err)
		}
		line, _ := rows.FieldPos(0)
		figure := func(name string) (v float64) {
			i, ok := column[name]
			if !ok || err != nil {
				return 0
			}
			if v, err = strconv.ParseFloat(strings.TrimSpace(row[i]), 64); err != nil || !(v >= 0 && v <= 1e12) {
				err = fmt.Errorf("config: load test: line %d: %s: %q: want a number from 0", line, name, row[i])
			}
			return v
		}
		step := LoadTest{
			Concurrency: int(figure("concurrency")), Throughput: figure("throughput"), Errors: figure("errors"),
			Latency: milliseconds(figure("latency_ms")), P99: milliseconds(figure("p99_ms")),
		}
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	if len(steps) == 0 {
		return nil, errors.New("config: load test: there are no rows")
	}
	return steps, nil
}

func milliseconds(v float64) time.Duration {
	return time.Duration(min(v, 1e9) * float64(time.Millisecond))
}

// BestConcurrency returns the step with the least concurrency whose throughput is within 3
// % of the highest: more calls at a time than that only wait for each other. Steps in which
// more than 1 % failed do not count, unless all did.
func BestConcurrency(steps []LoadTest) LoadTest {
	good := slices.DeleteFunc(slices.Clone(steps), func(s LoadTest) bool { return s.Errors > 0.01 })
	if len(good) == 0 {
		good = slices.Clone(steps)
	}
	most := 0.0
	for _, s := range good {
		most = max(most, s.Throughput)
	}
	slices.SortStableFunc(good, func(a, b LoadTest) int { return a.Concurrency - b.Concurrency })
	for _, s := range good {
		if s.Throughput >= 0.97*most {
			return s
		}
	}
	return LoadTest{}
}

// Rising reports whether the last of the steps has the highest throughput by more than 3 %:
// such a load test ended before it came to what the dependency bears, and what
// [BestConcurrency] says of it is too low. So is one of a single step. A last step in which
// more than 1 % failed is beyond it.
func Rising(steps []LoadTest) bool {
	if len(steps) == 0 {
		return false
	}
	last := steps[len(steps)-1]
	if last.Errors > 0.01 {
		return false
	}
	for _, s := range steps[:len(steps)-1] {
		if s.Throughput >= 0.97*last.Throughput {
			return false
		}
	}
	return true
}

// ReadPrometheus reads figures from the answer of Prometheus to an instant query (its HTTP
// API, as JSON): a vector whose series have a label fact, which is rate (calls per second),
// latency or p99 (both in seconds).
func ReadPrometheus(r io.Reader) (Measured, error) {
	var answer struct {
		Status string
		Error  string
		Data   struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(r).Decode(&answer); err != nil {
		return Measured{}, fmt.Errorf("config: Prometheus: %w", err)
	}
	if answer.Status != "success" || answer.Data.ResultType != "vector" {
		return Measured{}, fmt.Errorf("config: Prometheus: status %q, result %q %s: want the answer to an instant query, a vector", answer.Status, answer.Data.ResultType, answer.Error)
	}
	if len(answer.Data.Result) == 0 {
		return Measured{}, errors.New("config: Prometheus: the answer is empty: no series matches the query")
	}
	var m Measured
	for _, series := range answer.Data.Result {
		text, _ := series.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || v < 0 || v > 1e12 {
			return Measured{}, fmt.Errorf("config: Prometheus: fact %q: %q: want a number from 0 (is there traffic, and does the metric exist?)", series.Metric["fact"], text)
		}
		switch fact := series.Metric["fact"]; fact {
		case "rate":
			m.Rate = v
		case "latency":
			m.Latency = milliseconds(1000 * v)
		case "p99":
			m.P99 = milliseconds(1000 * v)
		default:
			return Measured{}, fmt.Errorf("config: Prometheus: a series with the label fact=%q: want rate, latency or p99", fact)
		}
	}
	return m, nil
}
