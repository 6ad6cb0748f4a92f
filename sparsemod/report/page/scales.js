// Axes: linear and logarithmic scales, their ticks, and how they are drawn.

/** Map values to pixels. On a logarithmic scale, what is not positive lies at the lower end, which is marked 0. */
function makeScale(values, log, from, to) {
  const positive = values.filter((v) => v > 0);
  if (log && positive.length > 0) return logScale(values, positive, from, to);
  let low = Math.min(...values, Infinity);
  let high = Math.max(...values, -Infinity);
  if (!(low <= high)) [low, high] = [0, 1];
  const pad = high > low ? 0.05 * (high - low) : Math.abs(high) * 0.5 || 1;
  [low, high] = [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
  const scale = (v) => from + ((v - low) / (high - low)) * (to - from);
  scale.ticks = (n) => linearTicks(low, high, n);
  scale.edge = high;
  return scale;
}

function logScale(values, positive, from, to) {
  const hasZero = positive.length < values.length;
  let low = Math.log10(Math.min(...positive));
  let high = Math.log10(Math.max(...positive));
  const pad = high > low ? 0.06 * (high - low) : 0.3;
  [low, high] = [low - (hasZero ? 4 * pad : pad), high + pad];
  const floor = low + 0.3 * pad;
  const at = (v) => (v > 0 ? Math.max(Math.log10(v), floor) : floor);
  const scale = (v) => from + ((at(v) - low) / (high - low)) * (to - from);
  scale.ticks = (n) => {
    const ticks = logTicks(low + (hasZero ? 2.5 * pad : 0), high, n);
    return hasZero ? [0, ...ticks] : ticks;
  };
  scale.edge = 10 ** high;
  return scale;
}

function linearTicks(low, high, n) {
  const raw = (high - low) / Math.max(n, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, n) {
  for (const digits of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let p = Math.floor(low); p <= Math.ceil(high); p++) {
      for (const d of digits) {
        const value = d * 10 ** p;
        if (Math.log10(value) >= low && Math.log10(value) <= high) ticks.push(Number(value.toPrecision(6)));
      }
    }
    if (ticks.length <= n || digits.length === 1) {
      const stride = Math.ceil(ticks.length / Math.max(n, 1));
      return ticks.filter((_, i) => i % stride === 0);
    }
  }
  return [];
}

/** Draw the frame of a chart: grid, ticks and the names of the axes. */
function drawAxes(box, x, y, formatX, formatY, labelX, labelY) {
  const g = s("g", { class: "axes", "aria-hidden": "true" });
  for (const tick of y.ticks(Math.max(3, Math.floor((box.bottom - box.top) / 38)))) {
    const at = y(tick);
    g.append(s("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" }));
    g.append(s("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, formatY(tick)));
  }
  for (const tick of x.ticks(Math.max(2, Math.floor((box.right - box.left) / 85)))) {
    const at = x(tick);
    g.append(s("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "grid" }));
    g.append(s("text", { x: at, y: box.bottom + 18, "text-anchor": "middle" }, formatX(tick)));
  }
  g.append(s("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle", class: "label" }, labelX));
  const middle = (box.top + box.bottom) / 2;
  g.append(s("text", { x: 14, y: middle, transform: `rotate(-90 14 ${middle})`, "text-anchor": "middle", class: "label" }, labelY));
  return g;
}
