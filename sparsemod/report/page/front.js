// The trade-off between two of the quantities, every arm a point.
(() => {
  const container = byId("front-chart");
  let points = [];
  let focused = null;
  let chart = null;

  function draw(width) {
    const hadFocus = container.contains(document.activeElement);
    const height = Math.round(Math.min(520, Math.max(330, width * 0.66)));
    const box = { left: 66, right: width - 14, top: 12, bottom: height - 48 };
    const [mx, my] = [METRICS[state.x], METRICS[state.y]];
    const x = makeScale(COMPLETED.map((a) => a.values[state.x]), state.logX, box.left, box.right);
    const y = makeScale(COMPLETED.map((a) => a.values[state.y]), state.logY, box.bottom, box.top);
    chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": chartLabel() });
    chart.append(drawAxes(box, x, y, mx.format, my.format, mx.axis, my.axis), drawLimits(box, x, y));
    if (!state.frontOnly) chart.append(drawOutside(x, y));
    chart.append(drawStairs(box, x, y), drawPoints(x, y));
    chart.append(s("path", { class: "halo", d: "", "aria-hidden": "true" }));
    chart.addEventListener("pointermove", hover);
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("click", (event) => {
      const point = nearest(event);
      if (point) choose(point.arm, false);
    });
    chart.addEventListener("keydown", key);
    container.replaceChildren(chart);
    if (!points.some((p) => p.arm.name === focused)) focused = firstFront();
    markFocusable();
    highlight(state.selected);
    if (hadFocus) focusPoint(focused);
  }

  function chartLabel() {
    const n = state.fits.length;
    return `${METRICS[state.y].label} against ${METRICS[state.x].label}: ${n} arms, ${state.front.size} on the front`;
  }

  function drawLimits(box, x, y) {
    const g = s("g", { class: "limits", "aria-hidden": "true" });
    const [lx, ly] = [state.limits[state.x] ?? null, state.limits[state.y] ?? null];
    if (lx !== null && lx < x.edge) {
      const at = Math.max(box.left, x(lx));
      g.append(s("rect", { x: at, y: box.top, width: Math.max(0, box.right - at), height: box.bottom - box.top }));
      g.append(s("line", { x1: at, x2: at, y1: box.top, y2: box.bottom }));
    }
    if (ly !== null && ly < y.edge) {
      const at = Math.min(box.bottom, y(ly));
      g.append(s("rect", { x: box.left, y: box.top, width: box.right - box.left, height: Math.max(0, at - box.top) }));
      g.append(s("line", { x1: box.left, x2: box.right, y1: at, y2: at }));
    }
    return g;
  }

  function drawOutside(x, y) {
    const fits = new Set(state.fits);
    const g = s("g", { class: "outside", "aria-hidden": "true" });
    for (const arm of COMPLETED) {
      if (fits.has(arm)) continue;
      const at = `translate(${x(arm.values[state.x])} ${y(arm.values[state.y])})`;
      g.append(s("path", { d: "M-3 -3L3 3M3 -3L-3 3", transform: at }));
    }
    return g;
  }

  /** Join the arms of the front that nothing dominates in the two quantities shown. */
  function drawStairs(box, x, y) {
    const front = state.fits.filter((arm) => state.front.has(arm.name));
    const best = paretoFront(front, [state.x, state.y]);
    best.sort((a, b) => a.values[state.x] - b.values[state.x] || a.values[state.y] - b.values[state.y]);
    if (best.length === 0) return s("g");
    let d = `M${x(best[0].values[state.x])} ${box.top}`;
    for (const arm of best) d += `H${x(arm.values[state.x])}V${y(arm.values[state.y])}`;
    const limit = state.limits[state.x] ?? null;
    d += `H${limit === null ? box.right : Math.max(x(best[best.length - 1].values[state.x]), Math.min(box.right, x(limit)))}`;
    return s("g", { "aria-hidden": "true" }, s("path", { d: `${d}V${box.top}Z`, class: "dominated" }), s("path", { d, class: "stairs" }));
  }

  function drawPoints(x, y) {
    const shown = state.fits.filter((arm) => !state.frontOnly || state.front.has(arm.name));
    shown.sort((a, b) => state.front.has(a.name) - state.front.has(b.name));
    points = shown.map((arm) => {
      const on = state.front.has(arm.name);
      const at = { arm, x: x(arm.values[state.x]), y: y(arm.values[state.y]) };
      at.node = s("path", {
        d: marker(arm.stage, on ? 5.5 : 3.6),
        transform: `translate(${at.x.toFixed(2)} ${at.y.toFixed(2)})`,
        class: `point stage-${arm.stage} ${on ? "on-front" : "off-front"}`,
        role: "button",
        tabindex: -1,
        "data-arm": arm.name,
        "aria-label": describe(arm),
        onfocus: () => showPoint(at),
        onblur: leave,
      });
      return at;
    });
    return s("g", {}, ...points.map((p) => p.node));
  }

  const firstFront = () => (points.find((p) => state.front.has(p.arm.name)) ?? points[0])?.arm.name ?? null;

  function markFocusable() {
    for (const p of points) p.node.setAttribute("tabindex", p.arm.name === focused ? 0 : -1);
  }

  function nearest(event) {
    const rect = chart.getBoundingClientRect();
    const [px, py] = [event.clientX - rect.left, event.clientY - rect.top];
    const reach = event.pointerType === "touch" ? 30 : 18;
    let best = null;
    let least = reach;
    for (const p of points) {
      const distance = Math.hypot(p.x - px, p.y - py) - (state.front.has(p.arm.name) ? 3 : 0);
      if (distance < least) [best, least] = [p, distance];
    }
    return best;
  }

  function showPoint(p) {
    tip.arm(chart, p.x, p.y, p.arm);
    highlight(p.arm.name);
  }

  function hover(event) {
    const p = nearest(event);
    chart.classList.toggle("pointing", p !== null);
    if (p) showPoint(p);
    else leave();
  }

  function leave() {
    tip.hide();
    highlight(state.selected);
  }

  function highlight(name) {
    const p = points.find((q) => q.arm.name === name);
    const halo = chart.querySelector(".halo");
    halo.setAttribute("d", p ? marker(1, 10) : "");
    if (p) halo.setAttribute("transform", `translate(${p.x} ${p.y})`);
  }

  function focusPoint(name) {
    focused = name;
    markFocusable();
    points.find((p) => p.arm.name === name)?.node.focus();
  }

  function choose(arm, byKeyboard) {
    focused = arm.name;
    update({ selected: arm.name });
    if (byKeyboard) byId("details-title").focus();
  }

  const STEPS = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1], Home: ["x", 0], End: ["x", 0] };

  function key(event) {
    const p = points.find((q) => q.node === document.activeElement);
    if (!p) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(p.arm, true);
    } else if (event.key in STEPS) {
      event.preventDefault();
      const [axis, direction] = STEPS[event.key];
      const line = points.filter((q) => q === p || event.shiftKey || state.front.has(q.arm.name));
      line.sort((a, b) => a[axis] - b[axis] || a.y - b.y || (a.arm.name < b.arm.name ? -1 : 1));
      const place = line.indexOf(p) + direction;
      const next = event.key === "Home" ? line[0] : event.key === "End" ? line[line.length - 1] : line[place];
      if (next) focusPoint(next.arm.name);
    }
  }

  container.addEventListener("return-focus", () => focusPoint(focused));
  responsive(container, draw);
})();
