"use strict";
// The image of a captcha is tried again at most twice, 500 ms apart. Once it was tried again
// without end: each refusal then makes the next one, and 429s never stop.
const byId = (id) => document.getElementById(id);
const retries = 2, pause = 500;
let tries = 0;

function show(text) { byId("note").textContent = text; }

function load() { byId("captcha").src = "/captcha?" + performance.now(); }

byId("captcha").addEventListener("error", () => {
  if (tries >= retries && !byId("uncapped").checked) {
    show("No picture after " + (tries + 1) + " tries. Please wait a moment and press the button.");
    return;
  }
  tries++;
  show("No picture; try " + (tries + 1) + " in half a second.");
  setTimeout(load, pause);
});
byId("captcha").addEventListener("load", () => { show(tries === 0 ? "" : "Got it with try " + (tries + 1) + "."); tries = 0; });
byId("again").addEventListener("click", () => { tries = 0; load(); });
// As many pages at once, each with its own retries.
byId("users").addEventListener("click", () => {
  for (let i = 0; i < 50; i++) visit(0, i);
});

async function visit(tried, i) {
  let got = false;
  try {
    const answer = await fetch("/captcha?" + i + "-" + performance.now());
    got = answer.ok && (await answer.blob()).size > 0;
  } catch { /* as good as no picture */ }
  if (!got && (tried < retries || byId("uncapped").checked)) setTimeout(() => visit(tried + 1, i), pause);
}
for (const id of ["stall", "reset"]) {
  byId(id).addEventListener("click", () => fetch("/" + id, { method: "POST" }));
}

async function tally() {
  try {
    const t = await (await fetch("/tally")).json();
    byId("name").textContent = t.name;
    for (const id of ["pictures", "empty", "tooMany", "failed", "healthy"]) byId(id).textContent = t[id];
    byId("busy").textContent = t.busy + " of " + t.workers;
  } finally {
    setTimeout(tally, 500);
  }
}
tally();
