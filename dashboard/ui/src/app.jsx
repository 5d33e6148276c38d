import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "./texts.js";
import { clock } from "./format.js";
import { go, live, lookBack, pause, setTheme, store } from "./store.js";
import { Overview } from "./overview.jsx";
import { Detail } from "./detail.jsx";
import { Faults } from "./config.jsx";

const themes = ["auto", "light", "dark"];

// shown is what is on the page: live, or what was held.
export function shown(s) {
  const h = s.held;
  return h
    ? { cards: h.cards, now: h.at, detail: h.detail, answers: h.answers, past: h.past }
    : { cards: s.cards, now: s.at, detail: s.detail, answers: s.answers, past: false };
}

export function App() {
  const s = store.use();
  const [help, setHelp] = useState(false);
  const keys = useRef();
  keys.current = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.closest("input:not([type=range]), textarea, select, dialog");
    if (e.key === "Escape" && !typing) return s.route ? go("") : live();
    if (typing) return;
    const button = e.target.closest("button, a, summary");
    if (/^[0-9]$/.test(e.key)) {
      const d = document.querySelectorAll("details.question")[e.key === "0" ? 9 : e.key - 1];
      if (d) {
        d.open = !d.open;
        d.querySelector("summary").focus();
      }
    } else if (e.key === "/") {
      const box = document.getElementById("search");
      if (box) {
        box.focus();
        e.preventDefault();
      }
    } else if (e.key === " " && !button) {
      s.held ? live() : pause();
      e.preventDefault();
    } else if ((e.key === "ArrowLeft" || e.key === "ArrowRight") && e.target.type !== "range") {
      const at = (s.held ? s.held.at : s.at) + (e.key === "ArrowLeft" ? -1000 : 1000);
      at >= s.at ? live() : lookBack(Math.max(at, s.oldest));
    } else if (e.key === "t") setTheme(themes[(themes.indexOf(s.theme) + 1) % 3]);
    else if (e.key === "?") setHelp(true);
  };
  useEffect(() => {
    const f = (e) => keys.current(e);
    addEventListener("keydown", f);
    return () => removeEventListener("keydown", f);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>{t.skip}</a>
      <Top s={s} onHelp={() => setHelp(true)} />
      <main id="main" tabIndex={-1}>
        {s.error && <p class="error" role="alert">{s.error}</p>}
        {s.ready && <Faults c={s.config} />}
        {!s.ready ? (!s.error && <p class="hint">{t.loading}</p>) : s.route ? <Detail s={s} /> : <Overview s={s} />}
      </main>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

function Top({ s, onHelp }) {
  const mode = s.held ? (s.held.past ? t.past(clock(s.held.at)) : t.paused) : s.status === "live" ? t.live : t.reconnecting;
  const kind = s.held ? "held" : s.status;
  return (
    <header class="top">
      <h1><a href="#/">{s.about.title}</a></h1>
      <span class={"mode " + kind} role="status">{mode}</span>
      <span class="clock">{s.at ? clock(s.held ? s.held.at : s.at) : ""}</span>
      <label class="scrub">
        <span>{t.scrub}</span>
        <input
          type="range" min={s.oldest} max={s.at} step={1000} value={s.held ? s.held.at : s.at} disabled={!s.ready}
          aria-valuetext={s.at ? clock(s.held ? s.held.at : s.at) : ""}
          onInput={(e) => (+e.target.value >= s.at - 1500 ? live() : lookBack(+e.target.value))}
        />
      </label>
      <div class="tools">
        <button onClick={() => (s.held ? live() : pause())}>{s.held ? t.resume : t.pause}</button>
        <a class="button" href="./api/export" download="breakwater.json">{t.export}</a>
        <button onClick={() => setTheme(themes[(themes.indexOf(s.theme) + 1) % 3])}>{t.theme[s.theme]}</button>
        <button onClick={onHelp}>{t.help}</button>
      </div>
    </header>
  );
}

// Modal is a dialog over the page.
export function Modal({ title, onClose, children }) {
  const ref = useRef();
  useEffect(() => {
    if (!ref.current.open) ref.current.showModal();
  }, []);
  return (
    <dialog ref={ref} onClose={onClose} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

function Help({ onClose }) {
  return (
    <Modal title={t.help} onClose={onClose}>
      <dl class="keys">{t.keyHelp.map(([k, what]) => <div><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <form method="dialog"><button>{t.close}</button></form>
    </Modal>
  );
}
