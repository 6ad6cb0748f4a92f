// All arms as a table that can be sorted by each column.
(() => {
  const value = (m) => (arm) => arm.values?.[m] ?? null;
  const resource = (key) => (arm) => arm.resources?.[key] ?? null;
  const COLUMNS = [
    { label: "Arm", get: (arm) => parseInt(arm.name, 10) },
    { label: "Error", get: value("error"), format: formatPercent },
    { label: "Test error", get: (arm) => arm.testError ?? null, format: formatPercent },
    { label: "Flash", get: value("model_size"), format: formatBytes },
    { label: "RAM", get: value("working_memory"), format: formatBytes },
    { label: "Latency", get: value("latency"), format: formatSeconds },
    { label: "Non-zeros", get: resource("n_nonzero"), format: formatCount },
    { label: "MACs", get: resource("n_macs"), format: formatCount },
    { label: "Stage", get: (arm) => arm.stage },
    { label: "Origin", get: (arm) => arm.origin, text: true },
    { label: "State", get: place, text: true },
  ];
  let sorted = { column: 1, ascending: true };
  let which = "front";
  const head = byId("arms-head");
  const body = byId("arms-body");

  function place(arm) {
    if (arm.status !== "completed") return arm.status;
    if (state.front.has(arm.name)) return "front";
    return withinLimits(arm) ? "dominated" : "beyond a limit";
  }

  const CHOICES = {
    front: (arm) => place(arm) === "front",
    fits: (arm) => ["front", "dominated"].includes(place(arm)),
    all: () => true,
  };

  /** Order by a column; what has no value comes last either way. */
  function compare(a, b) {
    const get = COLUMNS[sorted.column].get;
    const [u, v] = [get(a), get(b)];
    if (u === null || v === null) return (u === null) - (v === null) || parseInt(a.name, 10) - parseInt(b.name, 10);
    const order = u < v ? -1 : u > v ? 1 : 0;
    return (sorted.ascending ? order : -order) || parseInt(a.name, 10) - parseInt(b.name, 10);
  }

  function draw() {
    COLUMNS.forEach((_, i) => {
      const way = sorted.ascending ? "ascending" : "descending";
      head.children[i].setAttribute("aria-sort", i === sorted.column ? way : "none");
    });
    const active = body.contains(document.activeElement) ? document.activeElement.dataset.arm : null;
    const arms = DATA.arms.filter(CHOICES[which]).sort(compare);
    body.replaceChildren(...arms.map(row));
    if (arms.length === 0) body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "hint" }, "No arm.")));
    if (active) body.querySelector(`button[data-arm="${active}"]`)?.focus();
    byId("arms-count").textContent = `${arms.length} of ${DATA.arms.length} arms`;
  }

  function row(arm) {
    const chosen = arm.name === state.selected;
    const cells = COLUMNS.map(({ label, get, format, text }) => {
      if (label === "Arm") return h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-arm": arm.name, "aria-pressed": String(chosen) }, arm.name));
      if (label === "Stage") return h("td", {}, stageBadge(arm.stage));
      const content = format ? format(get(arm)) : get(arm);
      return h("td", { class: text ? null : "number", title: label === "State" && arm.reason ? arm.reason : null }, content);
    });
    const choose = () => update({ selected: arm.name });
    return h("tr", { class: `${chosen ? "chosen " : ""}${place(arm) === "front" ? "on-front" : ""}`, onclick: choose }, ...cells);
  }

  COLUMNS.forEach(({ label, text }, i) => {
    const sort = () => {
      sorted = { column: i, ascending: sorted.column === i ? !sorted.ascending : true };
      draw();
    };
    const plain = text || label === "Stage" || label === "Arm";
    head.append(h("th", { scope: "col", class: plain ? null : "number" }, h("button", { type: "button", onclick: sort }, label)));
  });
  byId("arms-filter").addEventListener("change", (event) => {
    which = event.target.value;
    draw();
  });
  onUpdate(draw);
})();
