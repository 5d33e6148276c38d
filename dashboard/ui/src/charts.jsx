import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import { t } from "./texts.js";
import { clock, num } from "./format.js";
import { lookBack } from "./store.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// drawMark draws the moment that is looked back to.
const drawMark = (mark) => (u) => {
  if (!mark.current) return;
  const x = u.valToPos(mark.current / 1000, "x", true);
  u.ctx.save();
  u.ctx.fillStyle = colour("ink");
  u.ctx.fillRect(x, u.bbox.top, 2, u.bbox.height);
  u.ctx.restore();
};

// Chart draws lines over time. A click looks back to that moment.
export function Chart({ title, x, series, mark, theme, log }) {
  const box = useRef(), plot = useRef(), at = useRef(mark);
  at.current = mark;
  const data = [x, ...series.map((s) => s[2])];
  const names = series.map((s) => s[0]).join();
  useEffect(() => {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, font: "12px system-ui, sans-serif" };
    const u = new uPlot({
      width: box.current.clientWidth, height: 150, cursor: { drag: { x: false, y: false }, points: { size: 6 } }, legend: { live: true },
      scales: { x: { time: true }, y: log ? { distr: 3, log: 10, range: (_, lo, hi) => [Math.max(0.1, 10 ** Math.floor(Math.log10(lo || 1))), 10 ** Math.ceil(Math.log10(hi || 10))] } : { range: (_, __, hi) => [0, Math.max(hi, 1) * 1.1] } },
      axes: [{ ...axis, values: (_, v) => v.map((s) => clock(s * 1000)), space: 90 }, { ...axis, size: 52, values: (_, v) => v.map((f) => (f == null || (log && !Number.isInteger(Math.log10(f))) ? "" : num(f))) }],
      series: [{ label: "", value: (_, s) => (s == null ? "" : clock(s * 1000)) }, ...series.map(([label, name]) => ({
        label, stroke: colour(name), width: name === "muted" ? 1 : 2, dash: name === "muted" ? [4, 4] : undefined, points: { show: false }, value: (_, f) => (f == null ? "–" : num(f)),
      }))],
      hooks: { draw: [drawMark(at)] },
    }, data, box.current);
    u.over.addEventListener("click", () => {
      const i = u.cursor.idx;
      if (i != null) lookBack(u.data[0][i] * 1000);
    });
    plot.current = u;
    const sized = new ResizeObserver(() => u.setSize({ width: box.current.clientWidth, height: 150 }));
    sized.observe(box.current);
    return () => {
      sized.disconnect();
      u.destroy();
    };
  }, [theme, names]);
  useEffect(() => {
    const u = plot.current;
    u?.setData(data);
    if (u && u.cursor.idx == null) u.setLegend({ idx: x.length - 1 }); // nobody points at another moment
  }, [x, mark, names, theme]);
  const last = series.map(([label, , v]) => `${label} ${num(v[v.length - 1])}`).join(", ");
  return <figure><figcaption>{title}</figcaption><div ref={box} role="img" aria-label={`${title}: ${last}`} /></figure>;
}

// Heat draws how latencies were spread over time.
export function Heat({ title, h, mark, theme }) {
  const ref = useRef();
  const first = h.columns.findIndex((n) => n.startsWith("heat."));
  const bands = h.heat.length;
  useEffect(() => {
    const c = ref.current, scale = devicePixelRatio || 1;
    const w = (c.width = c.clientWidth * scale), hgt = (c.height = 150 * scale);
    const ctx = c.getContext("2d");
    ctx.clearRect(0, 0, w, hgt);
    const left = 52 * scale, bottom = 4 * scale;
    let low = bands, high = 0, most = 0;
    for (const r of h.rows) for (let i = 0; i < bands; i++) {
      const v = r[first + i] || 0;
      if (v > 0) { low = Math.min(low, i); high = Math.max(high, i); most = Math.max(most, v); }
    }
    if (!most) return;
    low = Math.max(low - 1, 0);
    high = Math.min(high + 1, bands - 1);
    const n = high - low + 1, t0 = h.times[0], t1 = h.times[h.times.length - 1] + 1000;
    const x = (at) => left + ((w - left) * (at - t0)) / (t1 - t0), bh = (hgt - bottom) / n;
    ctx.fillStyle = colour("heat");
    h.rows.forEach((r, j) => {
      const from = j ? h.times[j - 1] : t0, to = h.times[j];
      for (let i = low; i <= high; i++) {
        const v = r[first + i] || 0;
        if (v <= 0) continue;
        ctx.globalAlpha = 0.15 + 0.85 * Math.sqrt(v / most);
        ctx.fillRect(x(from), hgt - bottom - (i - low + 1) * bh, Math.max(x(to) - x(from), scale), bh - 1);
      }
    });
    ctx.globalAlpha = 1;
    ctx.fillStyle = colour("muted");
    ctx.font = `${12 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    for (let i = low; i <= high; i += Math.ceil(n / 6)) {
      const f = h.heat[i];
      ctx.fillText(f >= 1000 ? num(f / 1000) + " s" : f + " ms", left - 6 * scale, hgt - bottom - (i - low + 1) * bh + 10 * scale);
    }
    if (mark) {
      ctx.fillStyle = colour("ink");
      ctx.fillRect(x(mark), 0, 2 * scale, hgt);
    }
  }, [h, mark, theme]);
  return <figure><figcaption>{title} <small>{t.chartHeatHint}</small></figcaption><canvas ref={ref} class="heat" role="img" aria-label={title} /></figure>;
}
