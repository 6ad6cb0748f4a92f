// The hypervolume after each evaluation; it belongs to the run's own limits, so the filters do not move it.
(() => {
  const container = byId("progress-chart");
  const evaluated = DATA.arms.filter((arm) => arm.status !== "pending");
  const values = DATA.hypervolume;

  function draw(width) {
    const height = 280;
    const box = { left: 66, right: width - 14, top: 26, bottom: height - 48 };
    const x = (i) => box.left + (values.length > 1 ? (i / (values.length - 1)) * (box.right - box.left) : (box.right - box.left) / 2);
    x.ticks = (n) => linearTicks(1, values.length, n).filter((t) => Number.isInteger(t)).map((t) => t - 1);
    if (values.length === 1) x.ticks = () => [0];
    const y = makeScale(values, false, box.bottom, box.top);
    const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label() });
    chart.append(drawStages(box, x), drawAxes(box, x, y, (i) => i + 1, (v) => number(v, 4), "evaluations", "hypervolume"));
    let d = "";
    values.forEach((v, i) => (d += i === 0 ? `M${x(0)} ${y(v)}` : `H${x(i)}V${y(v)}`));
    chart.append(s("path", { d, class: "growth" }));
    const small = values.length > 120 ? 2.2 : 3.4;
    evaluated.forEach((arm, i) => {
      const kind = arm.status === "failed" ? "failed" : "grown";
      const rise = values[i] > (values[i - 1] ?? 0);
      if (!rise && arm.status !== "failed") return;
      const shape = arm.status === "failed" ? "M-3 -3L3 3M3 -3L-3 3" : marker(arm.stage, small);
      chart.append(s("path", { d: shape, transform: `translate(${x(i)} ${y(values[i])})`, class: `${kind} stage-${arm.stage}` }));
    });
    chart.addEventListener("pointermove", (event) => hover(event, chart, box, x, y));
    chart.addEventListener("pointerleave", () => tip.hide());
    container.replaceChildren(chart);
  }

  function drawStages(box, x) {
    const g = s("g", { class: "bands", "aria-hidden": "true" });
    const half = values.length > 1 ? (x(1) - x(0)) / 2 : (box.right - box.left) / 2;
    let start = 0;
    for (let i = 1; i <= evaluated.length; i++) {
      if (i < evaluated.length && evaluated[i].stage === evaluated[start].stage) continue;
      const left = Math.max(box.left, x(start) - half);
      const right = Math.min(box.right, x(i - 1) + half);
      const stage = evaluated[start].stage;
      g.append(s("rect", { x: left, y: box.top, width: Math.max(0, right - left), height: box.bottom - box.top, class: `stage-${stage}` }));
      if (right - left > 44) g.append(s("text", { x: (left + right) / 2, y: box.top - 9, "text-anchor": "middle", class: `label stage-${stage}` }, STAGES[stage] ?? ""));
      start = i;
    }
    return g;
  }

  function hover(event, chart, box, x, y) {
    const rect = chart.getBoundingClientRect();
    const share = (event.clientX - rect.left - box.left) / (box.right - box.left);
    const i = Math.min(values.length - 1, Math.max(0, Math.round(share * (values.length - 1))));
    const arm = evaluated[i];
    const lines = [["Evaluation", i + 1], ["Hypervolume", number(values[i], 5)], ["Stage", STAGES[arm.stage] ?? arm.stage]];
    if (arm.status === "failed") lines.push(["Failed", arm.reason.slice(0, 60)]);
    tip.show(chart, x(i), y(values[i]), `Arm ${arm.name}`, lines);
  }

  function label() {
    const last = values[values.length - 1];
    return `Hypervolume over ${values.length} evaluations, from ${number(values[0], 4)} to ${number(last, 4)}; the table below has it by stage`;
  }

  if (values.length > 0) responsive(container, draw);
})();
