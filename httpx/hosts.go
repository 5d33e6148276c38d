package httpx

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Hosts is a [Chooser] that gives each host a pipeline of its own, made from the same
// configurations when the first request goes there, so that a host which is ill does not
// open the breaker for the others. Any number of transports may share it. It is safe for
// concurrent use.
//
// A host that the registry has a pipeline for already, under the name it would get, uses
// that, and what becomes of it is the registry's business. So one that differs is written
// down, in code or in a configuration file, and the rest is not.
//
// Their number is bounded (MaxHosts), whatever hosts redirects or users come up with: who
// comes late shares one pipeline with the other late ones, until some host has been idle
// for long enough to lose its own, and with it all that it knew. The pipelines are
// [policy.Derived].
type Hosts struct {
	reg  *policy.Registry
	cfg  HostsConfig
	rest *policy.Pipeline

	table sync.Map // of *hostEntry, by host

	mu       sync.Mutex // of what follows, and of changes to table
	policies []policy.Policy
	leaving  map[string]bool // those whose pipeline is being closed
	sweeps   *time.Timer     // nil while there is nothing to sweep
	closed   bool

	own                 atomic.Int64 // hosts with a pipeline of ours; changed under mu
	removed, overflowed atomic.Uint64
}

// hostEntry is a host with a pipeline.
type hostEntry struct {
	name string
	own  bool // made, and to be removed, by us

	users atomic.Int64 // requests that are on their way; gone once it has been removed
	idle  atomic.Int32 // sweeps since the last request
	done  func()       // the method, bound once
}

// gone is below any number of users.
const gone = -1 << 62

// maxName is the largest length of a pipeline's name.
const maxName = 128

// closeTimeout bounds the time in which an idle pipeline gives back what it holds.
const closeTimeout = 10 * time.Second

// sweepsUntilIdle is how many sweeps must find an entry unused. With two in each
// IdleAfter, and the first at any time after the last request, a third is past it.
const sweepsUntilIdle = 3

// NewHosts returns a [Hosts] that keeps its pipelines in reg, and makes the one of the
// rest at once, so that what is wrong with the configurations is known now. The error
// joins all of it, or matches [policy.ErrDuplicate]: each Hosts of a registry needs a
// Prefix of its own.
func NewHosts(reg *policy.Registry, cfg HostsConfig) (*Hosts, error) {
	if reg == nil {
		return nil, &policy.ConfigError{Policy: "hosts", Field: "reg", Value: "nil", Want: "want a registry"}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	// Not a derived one: it is there from the beginning, and always shown by name.
	rest, err := reg.New(cfg.Prefix+otherHosts, cfg.Policies...)
	if err != nil {
		return nil, err
	}
	return &Hosts{reg: reg, cfg: cfg, rest: rest, policies: cfg.Policies, leaving: make(map[string]bool)}, nil
}

// Config returns the effective settings; Policies are those that NewHosts was given.
func (h *Hosts) Config() HostsConfig {
	c := h.cfg
	c.Policies = slices.Clone(c.Policies)
	return c
}

// Choose implements [Chooser]. It never returns nil.
func (h *Hosts) Choose(req *http.Request) (p *policy.Pipeline, done func()) {
	host, ok := hostOf(req.URL)
	if !ok {
		return h.other()
	}
	for {
		e := h.entry(host)
		if e == nil {
			return h.other()
		}
		if !e.take() {
			continue // removed since it was found
		}
		// The registry is asked each time, since it may have changed: a pipeline of a
		// configuration file goes with its entry there.
		if p, ok = h.reg.Get(e.name); ok {
			return p, e.done
		}
		e.done()
		h.forget(host, e)
	}
}

// other counts a request to a host without a pipeline of its own.
func (h *Hosts) other() (p *policy.Pipeline, done func()) {
	h.overflowed.Add(1)
	return h.rest, nil
}

// entry returns that of a host, made now if it may have one; nil if not.
func (h *Hosts) entry(host string) *hostEntry {
	if e, ok := h.table.Load(host); ok {
		return e.(*hostEntry) // the table holds nothing else
	}
	return h.add(host)
}

// add makes the entry of a host that had none a moment ago.
func (h *Hosts) add(host string) *hostEntry {
	name := h.cfg.Prefix + host
	if host == otherHosts || len(name) > maxName {
		return nil
	}
	foreign, isForeign := h.reg.Get(name)
	if !isForeign && (h.full() || h.cfg.Accept != nil && !h.cfg.Accept(host)) {
		return nil
	}
	host = name[len(h.cfg.Prefix):] // the caller's is part of a URL, which need not be kept
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.table.Load(host); ok {
		return e.(*hostEntry) // another request was first
	}
	if h.closed || h.leaving[host] {
		return nil
	}
	e := &hostEntry{name: name}
	e.done = e.release
	if isForeign {
		// Not one that somebody else makes and removes as needed.
		if foreign.Snapshot().Derived > 0 {
			return nil
		}
		h.table.Store(host, e)
		return e
	}
	if h.full() {
		return nil
	}
	if _, err := h.reg.New(name, append(slices.Clip(h.policies), policy.Derived())...); err != nil {
		// The registry is closed: the policies have been built before.
		return nil
	}
	e.own = true
	h.own.Add(1)
	h.table.Store(host, e)
	if h.sweeps == nil && h.cfg.IdleAfter > 0 {
		h.sweeps = time.AfterFunc(h.cfg.IdleAfter/2, h.sweep)
	}
	return e
}

// full reports whether no other host may have a pipeline of its own. It is asked without
// the lock first, since that of a full table would be taken by each request to the rest.
func (h *Hosts) full() bool { return h.own.Load() >= int64(h.cfg.MaxHosts) }

// forget removes the entry of a host whose pipeline is no longer there.
func (h *Hosts) forget(host string, e *hostEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetLocked(host, e)
}

// forgetLocked requires that h.mu is held. It reports whether the entry was there.
func (h *Hosts) forgetLocked(host string, e *hostEntry) bool {
	if !h.table.CompareAndDelete(host, e) {
		return false
	}
	if e.own {
		h.own.Add(-1)
	}
	return true
}

// take notes that a request uses the entry, unless it is gone.
func (e *hostEntry) take() bool {
	if e.users.Add(1) <= 0 {
		return false // far below zero, where it stays
	}
	if e.idle.Load() != 0 { // mostly it is; and what is only read stays in every cache
		e.idle.Store(0)
	}
	return true
}

func (e *hostEntry) release() { e.users.Add(-1) }

// sweep removes what has been idle for long enough. It runs on a goroutine of its own,
// twice in each IdleAfter as long as there is a pipeline of ours.
func (h *Hosts) sweep() {
	var leaving []string
	h.mu.Lock()
	for k, v := range h.table.Range {
		host, e := k.(string), v.(*hostEntry)
		if !e.own || e.users.Load() > 0 || e.idle.Add(1) < sweepsUntilIdle {
			continue
		}
		p, ok := h.reg.Get(e.name)
		if ok && wanted(p.Snapshot()) || !e.users.CompareAndSwap(0, gone) {
			continue
		}
		h.forgetLocked(host, e)
		if ok {
			h.leaving[host] = true
			leaving = append(leaving, host)
		}
	}
	h.mu.Unlock()
	// Outside the lock: policies may have something to give back over a network.
	for _, host := range leaving {
		h.remove(host)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, host := range leaving {
		delete(h.leaving, host)
	}
	switch {
	case h.closed:
	case h.own.Load() > 0:
		h.sweeps = time.AfterFunc(h.cfg.IdleAfter/2, h.sweep)
	default:
		h.sweeps = nil
	}
}

// remove removes the pipeline of a host whose entry is gone.
func (h *Hosts) remove(host string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = h.reg.Remove(ctx, h.cfg.Prefix+host) // nobody waits for what it could not give back
	h.removed.Add(1)
}

// wanted reports whether a pipeline that has been idle knows something that must not be
// forgotten: permits are out, a breaker is open, or somebody holds it by hand. One that is
// not derived is somebody else's.
func wanted(s policy.Snapshot) bool {
	return s.Derived == 0 || slices.ContainsFunc(s.Policies, func(p policy.PolicySnapshot) bool {
		if p.Bulkhead != nil && p.Bulkhead.InFlight > 0 {
			return true
		}
		b := p.Breaker
		return b != nil && (b.Observing || b.RetryAfter > 0 || strings.HasPrefix(b.State, "forced_"))
	})
}

// Reload replaces the policies of every pipeline that Hosts has made, and of those it will
// make, while requests go on ([policy.Pipeline.Prepare]): what can go on under new
// settings keeps all that it knows. The error joins everything that is wrong; nothing has
// changed then, unless it matches [policy.ErrStale]: somebody else changed a pipeline at
// the same time, and it has kept what it got from them.
func (h *Hosts) Reload(policies ...policy.Policy) error {
	c := h.cfg
	c.Policies = policies
	if err := c.Validate(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	names := []string{h.rest.Name()}
	for _, v := range h.table.Range {
		if e := v.(*hostEntry); e.own {
			names = append(names, e.name)
		}
	}
	var (
		updates []*policy.Update
		errs    []error
	)
	for i, name := range names {
		all := slices.Clone(policies)
		if i > 0 {
			all = append(all, policy.Derived())
		}
		if _, ok := h.reg.Get(name); !ok {
			continue
		}
		u, err := h.reg.Prepare(name, all...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		updates = append(updates, u)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, u := range updates {
		errs = append(errs, u.Apply())
	}
	h.policies = slices.Clone(policies)
	return errors.Join(errs...)
}

// Close removes every pipeline that Hosts has made from the registry, and closes them as
// [policy.Registry.Remove] does; requests that come later are refused. Closing the registry
// does as well.
func (h *Hosts) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	if h.sweeps != nil {
		h.sweeps.Stop()
	}
	names := []string{h.rest.Name()}
	for k, v := range h.table.Range {
		e := v.(*hostEntry)
		if h.forgetLocked(k.(string), e) && e.own {
			names = append(names, e.name)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, h.reg.Remove(ctx, name))
	}
	return errors.Join(errs...)
}

// HostsSnapshot is the state of a [Hosts].
type HostsSnapshot struct {
	Own        int    // hosts with a pipeline that was made for them
	MaxHosts   int    // of Own
	Removed    uint64 // pipelines that were removed because they were idle, since the start
	Overflowed uint64 // requests that shared the pipeline of the rest, since the start
}

// Snapshot returns the state.
func (h *Hosts) Snapshot() HostsSnapshot {
	return HostsSnapshot{Own: int(h.own.Load()), MaxHosts: h.cfg.MaxHosts, Removed: h.removed.Load(), Overflowed: h.overflowed.Load()}
}

// hostOf returns a URL's host as a name: in lower case, without a dot at its end, and with
// the port only if it is not the one that its scheme means. It reports false for what is
// no host, or is not written in ASCII.
func hostOf(u *url.URL) (string, bool) {
	if u == nil || u.Host == "" {
		return "", false
	}
	if isPlain(u.Host) {
		return u.Host, true
	}
	for _, c := range []byte(u.Host) {
		if c <= ' ' || c >= 0x7f {
			return "", false
		}
	}
	name, port := strings.ToLower(u.Host), ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
		name, port = name[:i], name[i+1:]
	}
	name = strings.TrimRight(name, ".")
	if name == "" || strings.Contains(name, ":") && (name[0] != '[' || name[len(name)-1] != ']') {
		return "", false
	}
	if port != "" && port != defaultPorts[u.Scheme] {
		return name + ":" + port, true
	}
	return name, true
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// isPlain reports whether a host is a name as it should be written, as nearly all are.
func isPlain(host string) bool {
	for i := range len(host) {
		if c := host[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '.' || i == len(host)-1) {
			return false
		}
	}
	return true
}
