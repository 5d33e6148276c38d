import { t } from "./texts.js";
import { clock, duration, ms, num, percent, rate, story } from "./format.js";
import { shown } from "./app.jsx";
import { Badge, Bar } from "./overview.jsx";
import { Questions } from "./questions.jsx";
import { Act, Audit, InForce } from "./act.jsx";
import { Chart, Heat } from "./charts.jsx";
import { Settings } from "./config.jsx";

export function Detail({ s }) {
  const v = shown(s);
  const d = v.detail || s.detail;
  if (!d) return <p class="hint">{t.loading}</p>;
  const c = (v.past && v.cards.get(s.route)) || d.card;
  const now = v.past ? v.now : d.at;
  const tale = story(c, now);
  const changes = v.past ? d.changes.filter((x) => x.at <= v.now) : d.changes;
  return (
    <>
      <nav><a href="#/">← {t.back}</a></nav>
      <section class={"verdict level" + c.level} aria-label={c.name}>
        <p class="big"><span class="name">{c.name}</span> <Badge c={c} /></p>
        {tale && <p>{tale}</p>}
        <p class="line">
          {rate(c.calls)} {t.calls} · {c.p50 ? percent(c.errors) : "–"} {t.errors}{c.errorLimit ? ` (${t.limit(percent(c.errorLimit))})` : ""}
          {" · "}{t.latency} {ms(c.p50)} / {ms(c.p95)} / {ms(c.p99)} {t.unit.ms}
          {c.hasFallback ? ` · ${percent(c.fallback)} ${t.fallback}` : ""}
        </p>
      </section>
      <InForce s={s} name={c.name} />
      {!v.past && <Questions answers={d.answers} />}
      <div class="columns">
        <section class="pipeline" aria-label={t.pipeline}>
          <h2>{t.pipeline} <small>{t.pipelineHint}</small></h2>
          <ol>
            <li class="end">{t.call}</li>
            {d.policies.map((p) => <Stage key={p.kind + p.name} p={p} now={now} past={v.past && s.history} at={v.now} />)}
            <li class="end">{t.dependency}</li>
          </ol>
        </section>
        <section class="charts" aria-label={t.charts}>
          <h2>{t.charts}</h2>
          {!d.history && <p class="hint">{t.noHistory}</p>}
          {s.history && <Charts h={s.history} mark={s.held ? v.now : 0} theme={s.theme} />}
        </section>
      </div>
      <Act s={s} d={d} />
      {!v.past && <Settings s={s} d={d} />}
      <div class="thirds">
        <section class="list" aria-label={t.timeline}>
          <h2>{t.timeline}</h2>
          {changes.length ? <ul tabIndex={0}>{changes.slice(0, 30).map((x) => (
            <li key={x.id}>
              <time>{clock(x.at)}</time> <strong>{x.policy}</strong>{" "}
              {x.from !== x.to && x.to ? <span class={"move to-" + x.to}>{t.states[x.from] || x.from} → {t.states[x.to] || x.to}</span> : null} {x.words}
              {x.key && <small> {t.key} {x.key}</small>}{x.note && <small> ({x.note})</small>}
            </li>
          ))}</ul> : <p class="hint">{t.timelineNone}</p>}
        </section>
        <Incidents title={t.refusals} none={t.refusalsNone} list={d.refusals} s={s} />
        <Incidents title={t.failures} none={t.failuresNone} list={d.failures} s={s} />
      </div>
      {!s.about.private && <p class="hint">{t.hidden}</p>}
      {s.about.act && <Audit name={c.name} tick={s.inForce.length} />}
      {d.warnings && <section class="list" aria-label={t.warnings}><h2>{t.warnings}</h2><ul tabIndex={0}>{d.warnings.map((w) => <li>{w}</li>)}</ul></section>}
    </>
  );
}

function Incidents({ title, none, list, s }) {
  return (
    <section class="list" aria-label={title}>
      <h2>{title}</h2>
      {list.length ? <ul tabIndex={0}>{list.map((x) => (
        <li>
          <time>{clock(x.at)}</time> {x.words}
          {x.error && <code>{x.error}</code>}
          {(x.key || x.trace) && (
            <small>
              {x.key && ` ${t.key} ${x.key}`}
              {x.trace && <> {t.trace} {s.about.traceUrl ? <a href={s.about.traceUrl.replaceAll("{trace}", encodeURIComponent(x.trace))} rel="noreferrer noopener" target="_blank">{x.trace}</a> : x.trace}</>}
            </small>
          )}
        </li>
      ))}</ul> : <p class="hint">{none}</p>}
    </section>
  );
}

function Stage({ p, now, past, at }) {
  if (past) return <PastStage p={p} h={past} at={at} />;
  const refused = (p.refused || []).reduce((n, r) => n + r.perSecond, 0);
  const total = Object.values(p.refusedTotal || {}).reduce((n, x) => n + x, 0);
  return (
    <li class={"stage" + (refused > 0 ? " refusing" : "") + (p.shadow ? " watching" : "")}>
      <h3>{p.name}{p.kind !== p.name && <small> {p.kind}</small>}{p.shadow && <span class="tag">{t.onlyWatches}</span>}</h3>
      <p>{p.words}</p>
      {p.breaker && <Machine b={p.breaker} now={now} />}
      {(p.gauges || []).concat(p.lanes || []).map((g) => <Gauge key={g.label} g={g} />)}
      {refused > 0 && <p class="refused"><strong>{t.refusedNow} {rate(refused)}</strong> {p.refused.map((r) => `${r.reason} ${rate(r.perSecond)}`).join(", ")}</p>}
      {total > 0 && <p class="notes">{t.refusedTotal(num(total))}</p>}
      {p.keys && <details><summary>{t.topKeys}</summary><ul>{p.keys.map((k) => <li><code>{k.key}</code> {num(k.calls)}, {num(k.refused)} {t.refused}</li>)}</ul></details>}
    </li>
  );
}

// PastStage is what the history keeps of a policy.
function PastStage({ p, h, at }) {
  const col = h.columns.indexOf(`policy.${p.name}.refused`);
  let row = null;
  h.times.forEach((x, i) => { if (x <= at) row = h.rows[i]; });
  const r = row && col >= 0 ? row[col] : null;
  return (
    <li class={"stage" + (r > 0 ? " refusing" : "")}>
      <h3>{p.name}</h3>
      <p>{t.pastPolicies}: {r == null ? "–" : rate(r)}</p>
    </li>
  );
}

function Gauge({ g }) {
  return (
    <div class="gauge">
      <span>{g.label}</span>
      {g.max > 0 && g.max < 1e300 ? <Bar value={g.value} max={g.max} good={g.full} label={g.label} /> : <span />}
      <span class="value">{num(g.full ? Math.floor(g.value) : g.value)}{g.max > 0 ? " / " + num(g.max) : ""}{g.unit || ""}</span>
    </div>
  );
}

const cycle = ["closed", "open", "half_open"];

// Machine draws the states of a breaker with the present one.
function Machine({ b, now }) {
  const forced = b.state.startsWith("forced");
  const states = b.state === "throttling" ? ["closed", "throttling"] : [...cycle, ...(b.state === "recovering" ? ["recovering"] : []), ...(forced ? [b.state] : [])];
  const left = b.next > now ? duration(b.next - now) : "";
  return (
    <div class="machine" role="group" aria-label={t.machine}>
      <ol class="states">
        {states.map((x) => (
          <li class={x === b.state ? "is " + x : ""} aria-current={x === b.state ? "step" : undefined}>
            {t.states[x]}
            {x === b.state && <small>{t.since(duration(now - b.since))}</small>}
            {x === b.state && x === "open" && <small>{left ? t.nextProbe(left) : t.probeNow}</small>}
            {x === b.state && forced && left && <small>{t.commandEnds(left)}</small>}
            {x === b.state && x === "half_open" && <small>{t.probes(b.probes, b.maxProbes)}</small>}
          </li>
        ))}
      </ol>
      {b.why && <p>{b.why}</p>}
      {b.failureThreshold > 0 && <Threshold name={t.failed} value={b.failureRatio} at={b.failureThreshold} show={percent} top={1} />}
      {b.slowThreshold > 0 && <Threshold name={t.slowRatio} value={b.slowRatio} at={b.slowThreshold} show={percent} top={1} />}
      {b.countThreshold > 0 && <Threshold name={t.failed} value={b.failures} at={b.countThreshold} show={num} />}
      {b.consecutiveThreshold > 0 && <Threshold name={t.inARow} value={b.consecutive || 0} at={b.consecutiveThreshold} show={num} />}
      <p class="notes">{[t.windowCalls(b.calls, b.minCalls), t.opened(b.opened), b.keys > 0 && t.keys(b.openKeys, b.keys), b.observing && t.watchesOnly].filter(Boolean).join(" · ")}</p>
    </div>
  );
}

function Threshold({ name, value, at, show, top }) {
  const max = top || Math.max(at * 1.25, value);
  const x = (f) => 100 * Math.min(f / max, 1);
  return (
    <div class="gauge">
      <span>{name}</span>
      <svg class={"threshold" + (value >= at ? " over" : "")} viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${name}: ${show(value)}, ${t.limit(show(at))}`}>
        <rect class="track" width="100" height="10" rx="2" />
        <rect class="value" width={x(value)} height="10" rx="2" />
        <rect class="at" x={Math.max(x(at) - 0.5, 0)} width="1" height="10" />
      </svg>
      <span class="value">{show(value)} <small>{t.limit(show(at))}</small></span>
    </div>
  );
}

function Charts({ h, mark, theme }) {
  const col = (name) => {
    const i = h.columns.indexOf(name);
    return h.rows.map((r) => (i < 0 ? null : r[i]));
  };
  const sum = (names) => {
    const at = names.map((n) => h.columns.indexOf(n)).filter((i) => i >= 0);
    return h.rows.map((r) => at.reduce((n, i) => n + (r[i] || 0), 0));
  };
  const refused = h.columns.filter((n) => n.startsWith("refused."));
  const x = h.times.map((at) => at / 1000);
  const n = t.series;
  return (
    <>
      <Chart title={t.chartCalls} x={x} mark={mark} theme={theme} series={[[n.calls, "fine", col("calls")], [n.failed, "bad", sum(["attempts.failure", "attempts.timeout", "attempts.busy"])], [n.refused, "warn", sum(refused)], [n.fallback, "note", col("served")]]} />
      <Chart title={t.chartLatency} x={x} mark={mark} theme={theme} log series={[[n.p50, "fine", col("p50")], [n.p95, "warn", col("p95")], [n.p99, "bad", col("p99")]].map(([a, b, c]) => [a, b, c.map((v) => v || null)])} />
      <Heat title={t.chartHeat} h={h} mark={mark} theme={theme} />
      {col("limit").some((v) => v > 0) && <Chart title={t.chartFlight} x={x} mark={mark} theme={theme} series={[[n.inFlight, "fine", col("inFlight")], [n.waiting, "warn", col("waiting")], [n.limit, "muted", col("limit")]]} />}
    </>
  );
}
