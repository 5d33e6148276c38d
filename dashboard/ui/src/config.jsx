import { useEffect, useState } from "preact/hooks";
import { t } from "./texts.js";
import { clock } from "./format.js";
import { configuration } from "./store.js";
import { Dialog } from "./act.jsx";

// Faults says what is wrong with the configuration that was loaded last, until it is right.
export function Faults({ c }) {
  if (!c?.faults?.length) return null;
  return (
    <section class="faults" role="alert" aria-label={t.faults}>
      <p><strong>{t.faultsAt(c.faultAt ? clock(c.faultAt) : "?")}</strong> {t.faultsHint(c.version)}</p>
      <ul>{c.faults.map((f) => <li><code>{f}</code></li>)}</ul>
    </section>
  );
}

// from says where a setting comes from.
const from = (x) =>
  x.layer === "hand" ? [x.origin, x.until && t.until(clock(x.until))].filter(Boolean).join(", ") : [t.layers[x.layer] || x.layer, x.origin].filter(Boolean).join(": ");

// Settings lists every setting of a dependency, and where it comes from.
export function Settings({ s, d }) {
  const [what, setWhat] = useState(null);
  if (!d.settings) return null;
  const rows = (list) => (
    <table>
      <thead><tr><th scope="col">{t.setting}</th><th scope="col">{t.value}</th><th scope="col">{t.origin}</th></tr></thead>
      <tbody>{list.map((x) => <tr key={x.field} class={"layer-" + x.layer} data-setting={x.field}><th scope="row">{x.field}</th><td><code>{x.value}</code></td><td>{from(x)}</td></tr>)}</tbody>
    </table>
  );
  return (
    <section class="settings" aria-label={t.settings}>
      <h2>{t.settings} <small>{t.settingsHint}</small></h2>
      <div class="policies">
        {d.settings.map((p) => {
          const made = p.settings.filter((x) => x.layer !== "default");
          const rest = p.settings.filter((x) => x.layer === "default");
          const fields = p.settings.filter((x) => !x.field.includes("["));
          return (
            <div key={p.policy} data-policy={p.policy}>
              <h3>{p.policy}{p.kind !== p.policy && <small> {p.kind}</small>}
                {s.about.act && fields.length > 0 && <button data-act="change" data-policy={p.policy} onClick={() => setWhat({ action: "change", policy: { name: p.policy }, fields })}>{t.actions.change}</button>}
              </h3>
              {made.length > 0 && rows(made)}
              {rest.length > 0 && <details><summary>{t.defaults(rest.length)}</summary>{rows(rest)}</details>}
            </div>
          );
        })}
      </div>
      {what && <Dialog s={s} dependency={d.card.name} what={what} onClose={() => setWhat(null)} />}
    </section>
  );
}

// Configuration says which configuration is in force, and how it came about.
export function Configuration({ s }) {
  const [h, setH] = useState(null);
  const [open, setOpen] = useState(false);
  const [what, setWhat] = useState(null);
  const c = s.config;
  useEffect(() => {
    if (open) configuration().then(setH).catch(() => setH(null));
  }, [open, c?.version, c?.refused]);
  if (!c) return null;
  return (
    <section class="list configuration" aria-label={t.configuration}>
      <h2>{t.configuration}</h2>
      <p>{t.configInForce(c.version, c.since ? clock(c.since) : "?", c.applied, c.refused)}</p>
      {c.managed && (
        <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
          <summary>{t.versions}</summary>
          {h && <ul tabIndex={0}>{h.versions.map((v, i) => (
            <li key={v.number} data-version={v.number}>
              <time>{clock(v.at)}</time> <strong>{t.version(v.number)}</strong> {t.whys[v.why] || v.why}{v.note && <small> {v.note}</small>}
              {s.about.act && i > 0 && <button data-act="rollback" onClick={() => setWhat({ action: "rollback", version: v.number })}>{t.rollback}</button>}
              {v.changes && <ul>{v.changes.map((x) => <li>{x}</li>)}</ul>}
              {v.differences && <ul class="diff">{v.differences.map((x) => <li><code>{x.what}</code>: {x.from} → {x.to}</li>)}</ul>}
            </li>
          ))}</ul>}
        </details>
      )}
      {what && <Dialog s={s} what={what} onClose={() => setWhat(null)} />}
    </section>
  );
}
