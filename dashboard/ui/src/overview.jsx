import { useMemo, useState } from "preact/hooks";
import { t } from "./texts.js";
import { marks, ms, num, percent, rate, status, story, worstFirst } from "./format.js";
import { shown } from "./app.jsx";
import { Questions } from "./questions.jsx";
import { InForce } from "./act.jsx";
import { Configuration } from "./config.jsx";

const many = 48; // cards that are drawn before more are asked for

export function Overview({ s }) {
  const v = shown(s);
  const [search, setSearch] = useState("");
  const [group, setGroup] = useState("");
  const [only, setOnly] = useState(false);
  const [more, setMore] = useState(1);
  const cards = useMemo(() => [...v.cards.values()].sort(worstFirst), [v.cards]);
  const groups = [...new Set(cards.map((c) => c.group || ""))].sort();
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = cards.filter((c) =>
    (!group || (c.group || "") === (group === "–" ? "" : group)) && (!only || c.level > 0) &&
    words.every((w) => (c.name + " " + status(c)).toLowerCase().includes(w)));
  const drawn = fits.slice(0, many * more);
  return (
    <>
      <Verdict cards={cards} now={v.now} />
      <InForce s={s} />
      {!v.past && <Questions answers={v.answers} links />}
      <section aria-label={t.dependencies}>
        <div class="filters">
          <h2>{t.dependencies}</h2>
          <input id="search" type="search" placeholder={t.search} aria-label={t.search} value={search} onInput={(e) => setSearch(e.target.value)} />
          {groups.length > 1 && (
            <select aria-label={t.group} value={group} onChange={(e) => setGroup(e.target.value)}>
              <option value="">{t.allGroups}</option>
              {groups.map((g) => {
                const of = cards.filter((c) => (c.group || "") === g);
                return <option value={g || "–"}>{(g || t.ungrouped) + " (" + t.groupSummary(of.length, of.filter((c) => c.level > 1).length) + ")"}</option>;
              })}
            </select>
          )}
          <label class="check"><input type="checkbox" checked={only} onChange={(e) => setOnly(e.target.checked)} />{t.onlyTrouble}</label>
        </div>
        {fits.length === 0 && cards.length > 0 && <p class="hint">{t.noMatch}</p>}
        <ul class="cards">
          {drawn.map((c) => <li key={c.name}><Card c={c} now={v.now} spark={v.past ? null : s.sparks.get(c.name)} /></li>)}
        </ul>
        {fits.length > drawn.length && <button onClick={() => setMore(more + 2)}>{t.more(fits.length - drawn.length)}</button>}
      </section>
      {!v.past && <Configuration s={s} />}
    </>
  );
}

function Verdict({ cards, now }) {
  const bad = cards.filter((c) => c.level === 3);
  const warn = cards.filter((c) => c.level === 2);
  const level = bad.length ? 3 : warn.length ? 2 : 0;
  const text = !cards.length ? t.none : bad.length ? t.trouble(bad.length, cards.length) : warn.length ? t.attention(warn.length, cards.length) : t.fineAll(cards.length);
  const list = (bad.length ? bad : warn).slice(0, 3);
  return (
    <section class={"verdict level" + level} aria-label={text}>
      <p class="big" role="status"><span class="mark" aria-hidden="true">{marks[level]}</span> {text}</p>
      {list.map((c) => (
        <p key={c.name}><a href={"#/d/" + encodeURIComponent(c.name)}>{c.name}</a> <strong>{status(c)}</strong>{story(c, now) && ": " + story(c, now)}</p>
      ))}
    </section>
  );
}

export function Badge({ c }) {
  return <span class={"badge level" + c.level}><span aria-hidden="true">{marks[c.level]}</span> {status(c)}</span>;
}

export function Bar({ value, max, label, good }) {
  const share = max > 0 ? Math.min(Math.max(value / max, 0), 1) : 0;
  const hot = !good && share >= 0.8;
  return (
    <div class={"bar" + (hot ? " hot" : "")} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)} aria-valuetext={percent(share)}>
      <div style={{ width: 100 * share + "%" }} />
    </div>
  );
}

function Card({ c, now, spark }) {
  const refused = (c.refused || []).reduce((n, r) => n + r.perSecond, 0);
  const tale = story(c, now);
  return (
    <article class={"card level" + c.level} aria-label={c.name}>
      <header>
        <h3><a href={"#/d/" + encodeURIComponent(c.name)}>{c.name}</a></h3>
        <Badge c={c} />
      </header>
      {tale && <p class="tale">{tale}</p>}
      {spark && <Spark data={spark} />}
      <dl class="figures">
        <Figure name={t.calls} value={rate(c.calls)} />
        <Figure name={t.errors} value={c.p50 ? percent(c.errors) : "–"} note={c.errorLimit ? t.limit(percent(c.errorLimit)) : ""} hot={c.errorLimit ? c.errors >= c.errorLimit / 2 : c.errors >= 0.1} />
        {c.slowLimit > 0 && <Figure name={t.slow} value={percent(c.slow)} note={t.limit(percent(c.slowLimit))} hot={c.slow >= c.slowLimit / 2} />}
        <Figure wide name={t.latency} value={`${ms(c.p50)} / ${ms(c.p95)} / ${ms(c.p99)} ${t.unit.ms}`} />
        {c.limit > 0 && <Figure name={t.inFlight} value={`${c.inFlight} / ${c.limit}`} hot={c.inFlight >= 0.8 * c.limit} bar={[c.inFlight, c.limit]} />}
        {c.maxWaiting > 0 && <Figure name={t.waiting} value={`${c.waiting} / ${c.maxWaiting}`} hot={c.waiting >= 0.8 * c.maxWaiting} bar={[c.waiting, c.maxWaiting]} />}
        {c.burst > 0 && <Figure name={t.tokens} value={`${num(Math.floor(c.tokens))} / ${num(c.burst)}`} hot={c.tokens < 1 && c.refused?.some((r) => r.reason === "rate")} bar={[c.tokens, c.burst, true]} />}
        {c.hasBudget && <Figure name={t.budget} value={num(Math.max(Math.floor(c.budget), 0))} hot={c.budget < 1} />}
        {c.hasFallback && <Figure name={t.fallback} value={percent(c.fallback)} hot={c.fallback > 0} />}
      </dl>
      {refused > 0 && (
        <p class="refused"><strong>{rate(refused)} {t.refused}</strong>: {c.refused.map((r) => `${r.policy || ""} ${r.reason} ${rate(r.perSecond)}`.trim()).join(", ")}</p>
      )}
      {(c.keys > 0 || c.shadow || c.byHand) && (
        <p class="notes">{[c.keys > 0 && t.keys(c.openKeys, c.keys), c.shadow && t.shadow(c.shadow.join(", ")), c.byHand && t.byHand(c.byHand.join(", "))].filter(Boolean).join(" · ")}</p>
      )}
    </article>
  );
}

function Figure({ name, value, note, hot, wide, bar }) {
  return (
    <div class={(wide ? "wide " : "") + (hot ? "hot" : "")}>
      <dt>{name}</dt>
      <dd>{value}{note && <small> {note}</small>}{bar && <Bar value={bar[0]} max={bar[1]} good={bar[2]} label={name} />}</dd>
    </div>
  );
}

const width = 240, height = 36;

function Spark({ data: [calls, bad] }) {
  const top = Math.max(1, ...calls);
  const x = (i) => (width * (i + 120 - calls.length)) / 119;
  const y = (v) => height - (height - 2) * (v / top);
  const area = (list) => list.length < 2 ? "" : `M${x(0)},${height}` + list.map((v, i) => `L${x(i).toFixed(1)},${y(v).toFixed(1)}`).join("") + `L${x(list.length - 1)},${height}Z`;
  const n = calls.length - 1;
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={t.spark(num(calls[n]), num(bad[n]))}>
      <path class="good" d={area(calls)} />
      <path class="bad" d={area(bad)} />
    </svg>
  );
}
