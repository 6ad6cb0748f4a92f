"use strict";
// The data, the state, and what every part of the page needs. All text goes into text nodes, never into markup.
const DATA = JSON.parse(document.getElementById("run-data").textContent);
const METRICS = {
  error: { label: "Error", axis: "validation error", format: (v) => formatPercent(v) },
  model_size: { label: "Flash", axis: "flash of the weights", format: (v) => formatBytes(v) },
  working_memory: { label: "RAM", axis: "RAM of the activations", format: (v) => formatBytes(v) },
  latency: { label: "Latency", axis: "latency of an inference", format: (v) => formatSeconds(v) },
};
const STAGES = { 1: "sobol", 2: "bayes", 3: "morph" };
const ARMS = new Map(DATA.arms.map((arm) => [arm.name, arm]));
const COMPLETED = DATA.arms.filter(
  (arm) => arm.status === "completed" && Object.keys(METRICS).every((m) => arm.values[m] !== null),
);

const state = {
  limits: { ...DATA.limits },
  x: "model_size",
  y: "error",
  logX: true,
  logY: true,
  frontOnly: false,
  selected: null,
  fits: [],
  front: new Set(),
};
const listeners = [];

/** Tell which of the arms no other one dominates; equal ones do not dominate each other. */
function paretoFront(arms, metrics) {
  const rows = arms.map((arm) => metrics.map((m) => arm.values[m]));
  const dominates = (a, b) => a.every((v, i) => v <= b[i]) && a.some((v, i) => v < b[i]);
  return arms.filter((_, i) => !rows.some((row) => dominates(row, rows[i])));
}

function withinLimits(arm) {
  return Object.entries(state.limits).every(([m, limit]) => limit === null || arm.values[m] <= limit);
}

/** Change the state, find the front under the limits, and let every part draw itself anew. */
function update(changes) {
  Object.assign(state, changes);
  state.fits = COMPLETED.filter(withinLimits);
  state.front = new Set(paretoFront(state.fits, DATA.objectives).map((arm) => arm.name));
  for (const listener of listeners) listener();
}

function onUpdate(listener) {
  listeners.push(listener);
}

function number(value, digits = 3) {
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6, useGrouping: false });
}

function formatPercent(value) {
  return value === null || value === undefined ? "–" : `${number(value * 100)} %`;
}

function formatBytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${Math.round(value)} B`;
  return value < 1e6 ? `${number(value / 1000)} kB` : `${number(value / 1e6)} MB`;
}

function formatSeconds(value) {
  if (value === null || value === undefined) return "–";
  const ms = value * 1000;
  if (ms >= 1e4) return `${number(value)} s`;
  return ms > 0 && ms < 0.1 ? `${number(ms * 1000)} µs` : `${number(ms)} ms`;
}

function formatCount(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en").replaceAll(",", "\u202f");
}

function formatValue(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" && !Number.isInteger(value) ? number(value, 4) : String(value);
}

/** Say in one line what an arm is and costs. */
function describe(arm) {
  const costs = Object.entries(METRICS).map(([m, { label, format }]) => `${label} ${format(arm.values[m])}`);
  const place = state.front.has(arm.name) ? "on the front" : "not on the front";
  return `Arm ${arm.name}, ${STAGES[arm.stage] ?? "stage " + arm.stage}, ${place}. ${costs.join(", ")}`;
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return node;
}

function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

const byId = (id) => document.getElementById(id);

/** The mark of a stage: told apart by its shape as well as by its colour. */
function marker(stage, radius) {
  const r = radius;
  if (stage === 2) return `M${-r} ${-r}H${r}V${r}H${-r}Z`;
  if (stage === 3) return `M0 ${-1.3 * r}L${1.25 * r} ${0.95 * r}H${-1.25 * r}Z`;
  return `M${-1.1 * r} 0A${1.1 * r} ${1.1 * r} 0 1 1 ${1.1 * r} 0A${1.1 * r} ${1.1 * r} 0 1 1 ${-1.1 * r} 0Z`;
}

function stageBadge(stage) {
  const mark = s("svg", { viewBox: "-7 -7 14 14", class: "mark", "aria-hidden": "true" }, s("path", { d: marker(stage, 4.5) }));
  return h("span", { class: `badge stage-${stage}` }, mark, STAGES[stage] ?? `stage ${stage}`);
}

const tip = {
  show(chart, x, y, title, lines) {
    const node = byId("tip");
    node.replaceChildren(h("strong", {}, title), ...lines.map(([k, v]) => h("span", {}, h("i", {}, k), h("b", {}, v))));
    node.hidden = false;
    const box = chart.getBoundingClientRect();
    const left = box.left + x + 14;
    const fits = left + node.offsetWidth + 8 < document.documentElement.clientWidth;
    node.style.left = `${window.scrollX + Math.max(4, fits ? left : box.left + x - node.offsetWidth - 14)}px`;
    node.style.top = `${window.scrollY + Math.max(4, box.top + y - node.offsetHeight / 2)}px`;
  },
  arm(chart, x, y, arm) {
    const lines = Object.entries(METRICS).map(([m, { label, format }]) => [label, format(arm.values[m])]);
    if (arm.testError !== null) lines.splice(1, 0, ["Test error", formatPercent(arm.testError)]);
    this.show(chart, x, y, `Arm ${arm.name}`, [...lines, ["Origin", arm.origin]]);
  },
  hide() {
    byId("tip").hidden = true;
  },
};

/** Draw a chart whenever the state or its width changes. */
function responsive(container, draw) {
  let width = 0;
  const redraw = () => {
    width = container.clientWidth;
    if (width > 0) draw(width);
  };
  new ResizeObserver(() => {
    if (container.clientWidth !== width) redraw();
  }).observe(container);
  onUpdate(redraw);
}
