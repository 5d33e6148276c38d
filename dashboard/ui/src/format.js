import { t } from "./texts.js";

export const percent = (f) => (f > 0 && f < 0.01 ? (f * 100).toFixed(1) : Math.round(f * 100)) + " %";

export function num(f) {
  if (f == null || Number.isNaN(f)) return "–";
  const a = Math.abs(f);
  if (a >= 1e15) return "∞";
  if (a >= 10000) return Math.round(f / 1000) + "k";
  if (a >= 10 || Number.isInteger(f)) return String(Math.round(f));
  return f.toFixed(1);
}

export const rate = (f) => num(f) + t.unit.perSecond;

export function ms(f) {
  if (!f) return "–";
  if (f < 1) return f.toFixed(2);
  if (f < 10) return f.toFixed(1);
  return String(Math.round(f));
}

// duration says how long, in milliseconds, in a few signs.
export function duration(d) {
  const s = Math.max(d, 0) / 1000;
  if (s < 10) return s.toFixed(1) + " " + t.unit.s;
  if (s < 120) return Math.round(s) + " " + t.unit.s;
  if (s < 7200) return Math.round(s / 60) + " " + t.unit.min;
  if (s < 172800) return Math.round(s / 3600) + " " + t.unit.h;
  return Math.round(s / 86400) + " " + t.unit.days;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(at) {
  const d = new Date(at);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

// status is what a card says first, in words.
export function status(c) {
  const refused = (c.refused || []).reduce((n, r) => n + r.perSecond, 0);
  const watching = (c.shadow || []).includes(c.policy);
  if (c.state && !watching && !["closed", "forced_closed"].includes(c.state)) return t.states[c.state] || c.state;
  if (c.errorLimit ? c.errors >= c.errorLimit / 2 : c.errors >= 0.1) return t.status.failing;
  if (c.slowLimit && c.slow >= c.slowLimit / 2) return t.status.slow;
  if (refused > 0) return t.status.refusing;
  if (c.fallback > 0) return t.status.fallback;
  if (c.state === "forced_closed") return t.states.forced_closed;
  if (c.hasBudget && c.budget < 1 && c.level === 1) return t.status.budget;
  if ((c.byHand || []).length && c.level === 1) return t.status.hand;
  if (c.level === 1) return t.status.near;
  return c.level ? t.levels[c.level] : t.status.fine;
}

// story is why, since when, and what follows.
export function story(c, now) {
  const parts = [];
  if (c.state && c.state !== "closed") {
    if (c.why) parts.push(c.why);
    if (c.since) parts.push(t.since(duration(now - c.since)));
    if (c.state === "open") parts.push(c.next > now ? t.nextProbe(duration(c.next - now)) : t.probeNow);
    else if (c.next > now) parts.push(t.commandEnds(duration(c.next - now)));
  }
  return parts.join(" · ");
}

export const marks = ["●", "◆", "▲", "■"];

const rank = (c) =>
  c.level * 1000 +
  ["closed", "forced_closed", "recovering", "throttling", "half_open", "open", "forced_open"].indexOf(c.state) * 10 +
  c.errors * 5 + c.fallback + (c.refused || []).reduce((n, r) => n + Math.min(r.perSecond, 1), 0);

export const worstFirst = (a, b) => rank(b) - rank(a) || (a.name < b.name ? -1 : 1);
