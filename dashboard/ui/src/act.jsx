import { useEffect, useState } from "preact/hooks";
import { t } from "./texts.js";
import { clock } from "./format.js";
import { act, events, preview, store, undo } from "./store.js";
import { Modal } from "./app.jsx";

// InForce lists what was done by hand and goes on.
export function InForce({ s, name }) {
  const [which, setWhich] = useState(null);
  const list = s.inForce.filter((c) => !name || c.dependency === name);
  if (!list.length && !which) return null;
  return (
    <section class="inforce" aria-label={t.inForce}>
      <h2>{t.inForce}</h2>
      <ul>
        {list.map((c) => (
          <li key={c.id}>
            <span><strong>{c.dependency} {c.policy}</strong> {t.actions[c.action] || c.action}: {c.words} <small>({c.who}: {c.why}{c.ends && ", " + t.endsAt(clock(c.ends))})</small></span>
            {c.undoable && <button onClick={() => setWhich(c)}>{t.undo}</button>}
          </li>
        ))}
      </ul>
      {which && <Undo c={which} onClose={() => setWhich(null)} />}
    </section>
  );
}

function Undo({ c, onClose }) {
  const [why, setWhy] = useState("");
  const [error, setError] = useState("");
  const submit = async (e) => {
    e.preventDefault();
    try {
      await undo(c.id, why);
      store.set({ inForce: store.get().inForce.filter((x) => x.id !== c.id) });
      onClose();
    } catch (err) {
      setError(err.message);
    }
  };
  return (
    <Modal title={t.undoTitle} onClose={onClose}>
      <p>{c.dependency} {c.policy}: {c.words}</p>
      <form onSubmit={submit}>
        <label>{t.why}<input name="why" required maxLength={500} value={why} onInput={(e) => setWhy(e.target.value)} /></label>
        {error && <p class="error" role="alert">{error}</p>}
        <div class="row"><button type="submit" class="primary">{t.undo}</button><button type="button" onClick={onClose}>{t.cancel}</button></div>
      </form>
    </Modal>
  );
}

// Act offers what may be changed of a dependency.
export function Act({ s, d }) {
  const [what, setWhat] = useState(null);
  const offers = d.policies.filter((p) => p.offers);
  if (!s.about.act || !offers.length) return null;
  return (
    <section class="act" aria-label={t.act}>
      <h2>{t.act} <small>{t.actHint}</small></h2>
      <ul>
        {offers.map((p) => (
          <li key={p.name}>
            <strong>{p.name}</strong>
            {p.offers.actions.map((a) => <button data-act={a} data-policy={p.name} onClick={() => setWhat({ action: a, policy: p })}>{t.actions[a]}</button>)}
          </li>
        ))}
      </ul>
      {what && <Dialog s={s} dependency={d.card.name} what={what} onClose={() => setWhat(null)} />}
    </section>
  );
}

export function Dialog({ s, dependency, what: { action, policy, fields, version }, onClose }) {
  const lasting = !["reset", "release", "rollback"].includes(action);
  const command = ["force_open", "force_closed", "observe", "release", "reset"].includes(action);
  const [seconds, setSeconds] = useState(900);
  const [why, setWhy] = useState("");
  const [key, setKey] = useState("");
  const [field, setField] = useState(fields?.[0].field);
  const [text, setText] = useState(fields?.[0].value);
  const [values, setValues] = useState(Object.fromEntries((policy?.offers?.settings || []).map((x) => [x.name, String(x.value)])));
  const [diff, setDiff] = useState(null);
  const [error, setError] = useState("");
  const changed = () => Object.fromEntries((policy?.offers?.settings || []).filter((x) => values[x.name] !== String(x.value)).map((x) => [x.name, +values[x.name]]));
  const body = () => action === "rollback" ? { action, version } : ({
    dependency, policy: policy.name, action, ...(action === "change" && { texts: { [field]: text } }),
    ...(lasting && { seconds }), ...(action === "set" && { values: changed() }), ...(command && policy.offers.keyed && { key }),
  });
  const tryIt = (f) => async (e) => {
    e?.preventDefault();
    setError("");
    try {
      await f();
    } catch (err) {
      setError(err.message);
      setDiff(null);
    }
  };
  const show = tryIt(async () => setDiff(await preview(body())));
  const apply = tryIt(async () => {
    await act({ ...body(), why, expect: diff.expect });
    events(dependency || "").then((e) => store.set({ inForce: e.inForce }));
    onClose();
  });
  const edit = (f) => (e) => {
    setDiff(null);
    f(e.target.value);
  };
  const limits = Object.entries(t.minutes).filter(([sec]) => +sec <= s.about.maxSeconds);
  return (
    <Modal title={action === "rollback" ? t.rollbackTo(version) : t.actOn(t.actions[action], policy.name, dependency)} onClose={onClose}>
      <form onSubmit={diff ? apply : show}>
        {action === "set" && policy.offers.settings.map((x) => (
          <label key={x.name}>{x.name} {x.unit && <small>({x.unit})</small>}
            <input type="number" name={x.name} step={x.whole ? 1 : "any"} min={x.least} max={x.most} value={values[x.name]} onInput={edit((v) => setValues({ ...values, [x.name]: v }))} required />
          </label>
        ))}
        {fields && (
          <>
            <label>{t.setting}
              <select name="field" value={field} onChange={edit((v) => (setField(v), setText(fields.find((x) => x.field === v).value)))}>{fields.map((x) => <option value={x.field}>{x.field}</option>)}</select>
            </label>
            <label>{t.asInFile}<input name="text" maxLength={500} value={text} onInput={edit(setText)} required /></label>
          </>
        )}
        {command && policy.offers.keyed && <label>{t.whichKey}<input name="key" value={key} onInput={edit(setKey)} /></label>}
        {lasting && (
          <label>{t.forHow}
            <select name="seconds" value={seconds} onChange={edit((v) => setSeconds(+v))}>{limits.map(([sec, text]) => <option value={sec}>{text}</option>)}</select>
          </label>
        )}
        <label>{t.why}<input name="why" required maxLength={500} value={why} onInput={(e) => setWhy(e.target.value)} /></label>
        {diff && (
          <div class="difference">
            <h3>{t.difference}</h3>
            <table>
              <thead><tr><th scope="col">{policy ? policy.name : t.setting}</th><th scope="col">{t.from}</th><th scope="col">{t.to}</th></tr></thead>
              <tbody>{diff.differences.map((x) => <tr><th scope="row">{x.what}</th><td>{x.from}</td><td>{x.to}</td></tr>)}</tbody>
            </table>
            <p>{t.ends} {diff.ends}. {t.undoing} {diff.undo}.</p>
            {diff.warning && <p class="warning">{diff.warning}</p>}
            {diff.shared && <p class="warning">{t.shared(diff.shared.join(", "))}</p>}
          </div>
        )}
        {error && <p class="error" role="alert">{error}</p>}
        <div class="row">
          <button type="submit" class="primary" data-step={diff ? "apply" : "preview"}>{diff ? t.apply : t.preview}</button>
          <button type="button" onClick={onClose}>{t.cancel}</button>
        </div>
      </form>
    </Modal>
  );
}

// Audit shows who did what.
export function Audit({ name, tick }) {
  const [e, setE] = useState(null);
  useEffect(() => {
    events(name).then(setE).catch(() => setE(null));
  }, [name, tick]);
  if (!e) return null;
  const own = e.audit.filter((x) => x.dependency === name);
  const line = (x) => <li><time>{clock(x.time)}</time> <strong>{x.who || "?"}</strong> {t.actions[x.action] || x.action} {x.policy}: {x.refused || x.words} <small>{x.why}</small></li>;
  return (
    <section aria-label={t.audit} class="list">
      <h2>{t.audit}</h2>
      {own.length ? <ul tabIndex={0}>{own.slice(0, 20).map(line)}</ul> : <p class="hint">{t.auditNone}</p>}
      {e.refusedActions.length > 0 && <details><summary>{t.auditRefused} ({e.refusedActions.length})</summary><ul tabIndex={0}>{e.refusedActions.slice(0, 20).map(line)}</ul></details>}
    </section>
  );
}
