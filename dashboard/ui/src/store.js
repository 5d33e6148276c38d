import { signalLike } from "./signal.js";

// All state of the page is here: what the server sent, and what the viewer chose.
export const store = signalLike({
  ready: false, error: "", status: "connecting", // connecting, live
  about: { title: "breakwater" }, at: 0, offset: 0, oldest: 0,
  cards: new Map(), order: [], sparks: new Map(), answers: [], inForce: [], config: null,
  route: "", detail: null, history: null,
  held: null, // what is shown instead of what is live: { at, cards, detail } while paused or in the past
  theme: localStorage.getItem("theme") || "auto",
});

let source = null;
let refresh = 0;

async function json(path, options) {
  const res = await fetch("./api/" + path, { cache: "no-store", ...options });
  const body = await res.json().catch(() => ({ error: res.statusText }));
  if (!res.ok) throw Object.assign(new Error(body.error || res.statusText), { status: res.status });
  return body;
}

const query = (name) => (name ? "?name=" + encodeURIComponent(name) : "");

export async function start() {
  await load();
  connect();
}

async function load() {
  try {
    const o = await json("snapshot");
    const sparks = new Map(Object.entries(o.sparks || {}));
    store.set({
      ready: true, error: "", about: o.about, at: o.at, offset: o.at - Date.now(), oldest: o.oldest,
      cards: new Map(o.cards.map((c) => [c.name, c])), order: o.cards.map((c) => c.name).sort(),
      sparks, answers: o.answers || [], inForce: o.inForce, config: o.config || null,
    });
    document.title = o.about.title;
  } catch (e) {
    store.set({ error: e.message, ready: e.status ? false : store.get().ready });
    if (e.status !== 403) setTimeout(load, 2000);
  }
}

// connect opens the page's one stream. The browser opens it again when it breaks.
export function connect() {
  source?.close();
  source = new EventSource("./api/stream" + query(store.get().route));
  source.onopen = () => store.set({ status: "live" });
  source.onerror = () => {
    store.set({ status: "connecting" });
    if (source.readyState === EventSource.CLOSED) setTimeout(() => load().then(connect), 2000); // it was refused
  };
  source.addEventListener("cards", (e) => {
    const f = JSON.parse(e.data);
    const s = store.get();
    const cards = f.all ? new Map() : new Map(s.cards);
    for (const c of f.cards) cards.set(c.name, c);
    const order = f.all ? f.cards.map((c) => c.name) : s.order;
    const sparks = new Map();
    order.forEach((name, i) => {
      const [calls, bad] = s.sparks.get(name) || [[], []];
      const last = f.last[i] || [0, 0];
      sparks.set(name, [[...calls, last[0]].slice(-120), [...bad, last[1]].slice(-120)]);
    });
    store.set({ at: f.at, offset: f.at - Date.now(), cards, order, sparks, status: "live", error: "" });
  });
  source.addEventListener("fleet", (e) => store.set(JSON.parse(e.data)));
  source.addEventListener("dependency", (e) => {
    const detail = JSON.parse(e.data);
    if (detail.card.name !== store.get().route) return;
    store.set({ detail });
    if (++refresh % 2 === 0 && !store.get().held) loadHistory();
  });
  source.addEventListener("bye", () => setTimeout(() => load().then(connect), 1000));
}

let loading = false;
export async function loadHistory() {
  const name = store.get().route;
  if (!name || loading) return;
  loading = true;
  try {
    const history = await json("history" + query(name));
    if (store.get().route === name) store.set({ history });
  } catch {
    if (store.get().route === name) store.set({ history: null });
  } finally {
    loading = false;
  }
}

export function go(name) {
  location.hash = name ? "#/d/" + encodeURIComponent(name) : "#/";
}

export function readRoute() {
  const m = location.hash.match(/^#\/d\/(.+)$/);
  let route = "";
  try {
    route = m ? decodeURIComponent(m[1]) : "";
  } catch { /* not one of ours */ }
  if (route === store.get().route) return;
  store.set({ route, detail: null, history: null });
  if (source) connect();
  if (route) {
    json("dependency" + query(route)).then((detail) => store.get().route === route && store.set({ detail })).catch((e) => store.set({ error: e.message }));
    loadHistory();
  }
  window.scrollTo(0, 0);
}

// pause keeps what is shown; live goes back to what is.
export function pause() {
  const s = store.get();
  store.set({ held: { at: s.at, cards: s.cards, detail: s.detail, answers: s.answers, past: false } });
}
export const live = () => {
  store.set({ held: null });
  loadHistory();
};

let wanted = 0;
// lookBack shows the cards as they were.
export async function lookBack(at) {
  const s = store.get();
  wanted = at;
  store.set({ held: { ...(s.held || { cards: s.cards, detail: s.detail, answers: s.answers }), at, past: true } });
  await new Promise((r) => setTimeout(r, 80)); // while the slider moves
  if (wanted !== at) return;
  try {
    const o = await json("snapshot?at=" + Math.round(at));
    if (wanted === at && store.get().held) {
      store.set({ held: { ...store.get().held, cards: new Map(o.cards.map((c) => [c.name, c])) } });
    }
  } catch (e) {
    store.set({ error: e.message });
  }
}

const post = (path, body) =>
  json(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Breakwater-Act": "1" } });

export const preview = (a) => post("preview", a);
export const act = (a) => post("act", a);
export const undo = (id, why) => post("undo", { id, why });
export const configuration = () => json("config");
export const events = (name) => json("events" + query(name));

export function setTheme(theme) {
  localStorage.setItem("theme", theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  store.set({ theme });
}
