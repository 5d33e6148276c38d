// Package dashboard shows every breaker, pool and limit of a process live in a
// browser, and lets an operator act on them:
//
//	mux.Handle("/breakwater/", dashboard.Handler(registry, dashboard.Config{}))
//
// What pprof is to the runtime, this is to dependencies: one line, nothing to host, no
// address outside the process. The page is embedded and works under a strict
// content-security-policy. It answers at a glance what is open, since when, why, what
// follows, and what may be done about it; a history of 15 minutes lets whoever was
// called out of bed look back to the beginning.
//
// One sampler reads the registry's snapshots once a second, from the start and however
// many look; calls that succeed do not notice it. Attempts that were refused or failed
// are told to it, and it keeps a few of each sort.
//
// # Who may look
//
// Without [Config.Authorize] only requests from this machine that also name it as their
// host are answered, so that no page on the internet can read it through the
// operator's browser (DNS rebinding). Error texts and keys, which come from
// dependencies and callers, are shown only to a [Viewer] who may see them.
//
// # Who may act
//
// Nobody, unless [Config.Actions] is on and Authorize says that the viewer may. Each
// action needs a reason, ends by itself, can be undone, and is reported to
// [Config.Audit], as is each one that was refused.
//
// The same handler serves a JSON API and a stream of server-sent events: see
// docs/reference/dashboard.md. `breakwater top` shows it in a terminal.
package dashboard
