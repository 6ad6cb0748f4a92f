// Parallel coordinates: every arm a line over the objectives and as many parameters as are asked for.
(() => {
  const container = byId("parallel-chart");
  const N_FIRST = 4;
  const shown = new Set(DATA.parameters.slice(0, N_FIRST).map((p) => p.name));
  let lines = [];
  let xs = [];
  let chart = null;

  function axes(box) {
    const list = Object.entries(METRICS).map(([m, { label, format }]) => {
      const y = makeScale(COMPLETED.map((a) => a.values[m]), true, box.bottom, box.top);
      return { label, y, value: (arm) => arm.values[m], ticks: y.ticks(4).map((t) => [t, format(t)]) };
    });
    for (const p of DATA.parameters) if (shown.has(p.name)) list.push(parameterAxis(p, box));
    return list;
  }

  function parameterAxis(p, box) {
    const value = (arm) => arm.parameters[p.name] ?? null;
    if (p.values) {
      const step = (box.bottom - box.top) / p.values.length;
      const y = (v) => box.bottom - (p.values.indexOf(v) + 0.5) * step;
      const stride = Math.ceil(p.values.length / 12);
      return { label: p.name, y, value, ticks: p.values.filter((_, i) => i % stride === 0).map((v) => [v, formatValue(v)]) };
    }
    const y = makeScale([p.lower, p.upper], p.log, box.bottom, box.top);
    return { label: p.name, y, value, ticks: y.ticks(4).map((t) => [t, formatValue(t)]) };
  }

  function draw(available) {
    const n = Object.keys(METRICS).length + shown.size;
    const width = Math.max(available, 60 + n * 92);
    const height = 360;
    const box = { left: 40, right: width - 70, top: 42, bottom: height - 30 };
    const list = axes(box);
    xs = list.map((_, i) => box.left + (i * (box.right - box.left)) / Math.max(1, list.length - 1));
    chart = s("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Parallel coordinates of ${state.fits.length} arms over ${list.map((a) => a.label).join(", ")}`,
    });
    lines = state.fits.map((arm) => ({ arm, ys: list.map((a) => (a.value(arm) === null ? height - 12 : a.y(a.value(arm)))) }));
    const order = (line) => (line.arm.name === state.selected ? 2 : Number(state.front.has(line.arm.name)));
    lines.sort((a, b) => order(a) - order(b));
    for (const line of lines) {
      const kind = ["off-front", "on-front", "on-front chosen"][order(line)];
      line.node = s("path", { d: path(line.ys), class: `line stage-${line.arm.stage} ${kind}` });
      chart.append(line.node);
    }
    list.forEach((axis, i) => chart.append(drawAxis(axis, xs[i], i, box)));
    chart.addEventListener("pointermove", hover);
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("click", (event) => {
      const line = nearest(event);
      if (line) update({ selected: line.arm.name });
    });
    container.replaceChildren(chart);
  }

  /** Join the values by curves that leave each axis at a right angle. */
  function path(ys) {
    let d = `M${xs[0].toFixed(1)} ${ys[0].toFixed(1)}`;
    for (let i = 1; i < ys.length; i++) {
      const bend = (xs[i] - xs[i - 1]) * 0.4;
      d += `C${(xs[i - 1] + bend).toFixed(1)} ${ys[i - 1].toFixed(1)} ${(xs[i] - bend).toFixed(1)} ${ys[i].toFixed(1)} ${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    }
    return d;
  }

  function drawAxis(axis, x, i, box) {
    const label = axis.label.length > 16 ? `${axis.label.slice(0, 15)}…` : axis.label;
    const g = s("g", { class: "axis" }, s("line", { x1: x, x2: x, y1: box.top, y2: box.bottom }));
    g.append(s("text", { x, y: i % 2 ? 14 : 28, "text-anchor": "middle", class: "label" }, label, s("title", {}, axis.label)));
    for (const [value, text] of axis.ticks) {
      const y = axis.y(value);
      g.append(s("line", { x1: x - 3, x2: x + 3, y1: y, y2: y }), s("text", { x: x + 6, y: y + 4, class: "tick" }, text));
    }
    return g;
  }

  function nearest(event) {
    const rect = chart.getBoundingClientRect();
    const [px, py] = [event.clientX - rect.left, event.clientY - rect.top];
    const i = Math.min(Math.max(xs.findIndex((x) => x >= px), 1), xs.length - 1);
    const t = Math.min(1, Math.max(0, (px - xs[i - 1]) / (xs[i] - xs[i - 1])));
    const smooth = t * t * (3 - 2 * t);
    let best = null;
    let least = 12;
    for (const line of lines) {
      const y = line.ys[i - 1] + smooth * (line.ys[i] - line.ys[i - 1]);
      const distance = Math.abs(y - py) - (state.front.has(line.arm.name) ? 3 : 0);
      if (distance < least) [best, least] = [line, distance];
    }
    return best && { ...best, px, py };
  }

  function hover(event) {
    const line = nearest(event);
    for (const l of lines) l.node.classList.toggle("hovered", line !== null && l.arm === line.arm);
    if (line) tip.arm(chart, line.px, line.py, line.arm);
    else tip.hide();
  }

  function leave() {
    for (const l of lines) l.node.classList.remove("hovered");
    tip.hide();
  }

  const chooser = byId("parallel-axes");
  for (const p of DATA.parameters) {
    const box = h("input", { type: "checkbox", checked: shown.has(p.name) ? "" : null });
    box.addEventListener("change", () => {
      if (box.checked) shown.add(p.name);
      else shown.delete(p.name);
      draw(container.clientWidth);
    });
    chooser.append(h("label", { class: "check" }, box, p.name));
  }
  responsive(container, draw);
})();
