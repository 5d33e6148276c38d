package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[ratelimit.Rate]()
	budgetType   = reflect.TypeFor[retry.BudgetSource]()
	policyType   = reflect.TypeFor[policy.Policy]()
)

// decoder fills settings from nodes, and collects what is wrong with them.
type decoder struct {
	words      *vocabulary
	shared     map[string]retry.BudgetSource // by name; nil for one with faults
	dependency string                        // that is being read
	errs       []error
}

// maxFaults is how many faults are reported at once.
const maxFaults = 200

// full reports whether enough faults were found. One more says so.
func (d *decoder) full() bool {
	if len(d.errs) == maxFaults {
		var at Origin
		if last, ok := d.errs[maxFaults-1].(*Error); ok { //nolint:errorlint // they are not wrapped
			at = last.Origin
		}
		d.errs = append(d.errs, &Error{Origin: at, Problem: fmt.Sprintf("more than %d faults: the others are not listed", maxFaults)})
	}
	return len(d.errs) > maxFaults
}

// unknown reports a name that does not exist.
func (d *decoder) unknown(at Origin, path, what, name string, known []string) {
	if !d.full() {
		d.fail(at, path, "%s", unknown(what, name, known))
	}
}

func (d *decoder) fail(at Origin, path, format string, args ...any) {
	if d.full() {
		return
	}
	d.errs = append(d.errs, &Error{Origin: at, Path: path, Problem: fmt.Sprintf(format, args...)})
}

// value sets v from a node.
func (d *decoder) value(v reflect.Value, n *node, path string) {
	switch v.Type() {
	case durationType:
		d.duration(v, n, path)
		return
	case rateType:
		d.rate(v, n, path)
		return
	case budgetType:
		d.budget(v, n, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(v, n, path, nil)
	case reflect.Slice:
		d.list(v, n, path)
	case reflect.Map:
		d.table(v, n, path)
	case reflect.Bool:
		if b, ok := n.scalar.(bool); ok && n.kind == scalarNode {
			v.SetBool(b)
			return
		}
		d.fail(n.origin, path, "%s: want true or false", n.what())
	case reflect.Int, reflect.Int32, reflect.Int64:
		d.integer(v, n, path)
	case reflect.Float64:
		d.number(v, n, path)
	case reflect.Uint8, reflect.Int8:
		d.word(v, n, path)
	case reflect.String:
		if s, ok := n.scalar.(string); ok && n.kind == scalarNode {
			v.SetString(s)
			return
		}
		d.fail(n.origin, path, "%s: want a text", n.what())
	case reflect.Interface:
		if v.NumMethod() == 0 {
			if plain := n.plain(); plain != nil {
				v.Set(reflect.ValueOf(plain))
			}
			return
		}
		d.fail(n.origin, path, "can be set in code only")
	default:
		d.fail(n.origin, path, "can be set in code only")
	}
}

// fields sets the fields of a struct. Those that are skipped are set elsewhere.
func (d *decoder) fields(v reflect.Value, n *node, path string, skip []string) {
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want a mapping of %s", n.what(), strings.Join(fieldNames(v.Type()), ", "))
		return
	}
	for _, key := range n.keys {
		if slices.Contains(skip, key) {
			continue
		}
		f, ok := v.Type().FieldByName(key)
		if !ok || !settable(f) {
			d.unknown(n.names[key], join(path, key), "setting", key, fieldNames(v.Type()))
			continue
		}
		d.value(v.FieldByIndex(f.Index), n.fields[key], join(path, key))
	}
}

// settable reports whether a field can be written down in a file.
func settable(f reflect.StructField) bool {
	return f.IsExported() && !f.Anonymous && f.Type.Kind() != reflect.Func && f.Type.Kind() != reflect.Pointer
}

// fieldNames lists the fields of a struct that can be written down, also those that it
// has from an embedded one.
func fieldNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if settable(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case key == "":
		return path
	}
	return path + "." + key
}

func (d *decoder) list(v reflect.Value, n *node, path string) {
	if n.kind != listNode {
		d.fail(n.origin, path, "%s: want a list", n.what())
		return
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		e := reflect.New(v.Type().Elem()).Elem()
		if v.Type().Elem() == policyType {
			if p := d.entry(item, at); p != nil {
				e.Set(reflect.ValueOf(p))
			}
		} else {
			d.value(e, item, at)
		}
		v.Set(reflect.Append(v, e))
	}
}

func (d *decoder) table(v reflect.Value, n *node, path string) {
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want a mapping", n.what())
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.keys)))
	for _, key := range n.keys {
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(e, n.fields[key], join(path, key))
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), e)
	}
}

// special are the words for the values below zero that have a name in Go, such as
// breaker.Off and ratelimit.StartEmpty.
var special = map[string]int64{"off": -1, "none": -1, "unlimited": -1, "empty": -1}

func specialOf(n *node) (int64, bool) {
	if n.kind != scalarNode {
		return 0, false
	}
	switch s := n.scalar.(type) {
	case string:
		v, ok := special[strings.ToLower(s)]
		return v, ok
	case bool: // "off" may have become false on its way through another format
		return -1, !s
	}
	return 0, false
}

func (d *decoder) duration(v reflect.Value, n *node, path string) {
	if s, ok := specialOf(n); ok {
		v.SetInt(s)
		return
	}
	if s, ok := n.scalar.(string); ok && n.kind == scalarNode {
		t, err := time.ParseDuration(s)
		if err == nil {
			v.SetInt(int64(t))
			return
		}
	}
	if n.kind == scalarNode && (n.scalar == int64(0) || n.scalar == uint64(0)) {
		v.SetInt(0)
		return
	}
	d.fail(n.origin, path, "%s: want a duration with a unit, such as 500ms, 10s or 1m30s", n.what())
}

// units are those of a rate.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "h": time.Hour, "hour": time.Hour,
}

func (d *decoder) rate(v reflect.Value, n *node, path string) {
	if r, ok := parseRate(n); ok {
		v.Set(reflect.ValueOf(r))
		return
	}
	d.fail(n.origin, path, "%s: want a number of calls per time, such as 100/s, 6/min or 10/30s, or unlimited", n.what())
}

func parseRate(n *node) (ratelimit.Rate, bool) {
	if n.kind == mappingNode || n.kind == listNode {
		return ratelimit.Rate{}, false
	}
	s, ok := n.scalar.(string)
	if !ok {
		return ratelimit.Rate{}, false
	}
	if strings.EqualFold(s, "unlimited") {
		return ratelimit.PerSecond(math.Inf(1)), true
	}
	count, per, ok := strings.Cut(s, "/")
	if !ok {
		return ratelimit.Rate{}, false
	}
	tokens, err := strconv.ParseFloat(strings.TrimSpace(count), 64)
	if err != nil {
		return ratelimit.Rate{}, false
	}
	per = strings.TrimSpace(per)
	unit, ok := units[per]
	if !ok {
		if unit, err = time.ParseDuration(per); err != nil {
			return ratelimit.Rate{}, false
		}
	}
	return ratelimit.Per(tokens, unit), true
}

// sizes are the suffixes of large whole numbers.
var sizes = map[string]int64{
	"k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}

func (d *decoder) integer(v reflect.Value, n *node, path string) {
	i, ok := parseInt(n)
	if !ok || v.OverflowInt(i) {
		d.fail(n.origin, path, "%s: want a whole number, such as 200 or 10k", n.what())
		return
	}
	v.SetInt(i)
}

func parseInt(n *node) (int64, bool) {
	if n.kind != scalarNode {
		return 0, false
	}
	switch s := n.scalar.(type) {
	case int64:
		return s, true
	case uint64:
		return int64(s), s <= math.MaxInt64 //nolint:gosec // the second result says whether it fits
	case float64:
		return int64(s), s == math.Trunc(s) && math.Abs(s) < 1<<53
	case string:
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, true
		}
		digits := strings.TrimRight(s, "kMGi")
		factor, ok := sizes[s[len(digits):]]
		i, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if ok && err == nil && i <= math.MaxInt64/factor && i >= math.MinInt64/factor {
			return i * factor, true
		}
	}
	return specialOf(n)
}

func (d *decoder) number(v reflect.Value, n *node, path string) {
	f, ok := parseFloat(n)
	if !ok {
		d.fail(n.origin, path, "%s: want a number, such as 0.5 or 50%%", n.what())
		return
	}
	v.SetFloat(f)
}

func parseFloat(n *node) (float64, bool) {
	if n.kind != scalarNode {
		return 0, false
	}
	switch s := n.scalar.(type) {
	case int64:
		return float64(s), true
	case uint64:
		return float64(s), true
	case float64:
		return s, true
	case string:
		digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
		if f, err := strconv.ParseFloat(strings.TrimSpace(digits), 64); err == nil {
			if percent {
				f /= 100
			}
			return f, true
		}
	}
	i, ok := specialOf(n)
	return float64(i), ok
}

// word sets an enumeration of which the values have names.
func (d *decoder) word(v reflect.Value, n *node, path string) {
	known := words(v.Type())
	names := make([]string, len(known))
	for i, w := range known {
		names[i] = w.name
	}
	s, ok := n.scalar.(string)
	if !ok || n.kind != scalarNode {
		d.fail(n.origin, path, "%s: want one of %s", n.what(), strings.Join(names, ", "))
		return
	}
	for _, w := range known {
		if strings.EqualFold(w.name, s) {
			v.Set(w.value)
			return
		}
	}
	d.unknown(n.origin, path, "choice", s, names)
}

// named is a value of an enumeration.
type named struct {
	name  string
	value reflect.Value
}

// words lists the values of an enumeration, which are small numbers with names.
func words(t reflect.Type) (list []named) {
	for i := int8(-8); i < 64; i++ {
		v := reflect.New(t).Elem()
		switch {
		case t.Kind() == reflect.Int8:
			v.SetInt(int64(i))
		case i < 0:
			continue
		default:
			v.SetUint(uint64(i))
		}
		if s, ok := reflect.TypeAssert[fmt.Stringer](v); ok && s.String() != "unknown" {
			list = append(list, named{s.String(), v})
		}
	}
	return list
}
