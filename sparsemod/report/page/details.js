// The arm that was chosen: what it costs, its layers, its parameters, where it comes from.
(() => {
  const panel = byId("details");

  function draw() {
    const arm = ARMS.get(state.selected);
    if (!arm) {
      panel.replaceChildren(
        h("h3", { id: "details-title", tabindex: -1 }, "No arm chosen"),
        h("p", { class: "hint" }, "Choose a point of the plot or a line of the table to see its layers and parameters."),
      );
      return;
    }
    panel.replaceChildren(...[heading(arm), facts(arm), layers(arm), parameters(arm)].filter(Boolean));
  }

  function heading(arm) {
    const close = h("button", { type: "button", class: "quiet", "aria-label": "Close the details", onclick: leave }, "✕");
    const place = state.front.has(arm.name) ? h("span", { class: "badge front" }, "on the front") : null;
    const title = h("h3", { id: "details-title", tabindex: -1 }, `Arm ${arm.name}`);
    return h("div", { class: "heading" }, title, stageBadge(arm.stage), place, close);
  }

  function facts(arm) {
    if (arm.status !== "completed") return h("p", { class: "reason" }, arm.status === "failed" ? arm.reason : "It is being evaluated.");
    const r = arm.resources ?? {};
    const rows = [
      ["Error", formatPercent(arm.values.error)],
      ["Float error", formatPercent(arm.floatError)],
      ["Error on the chip", formatPercent(arm.integerError)],
      ["Test error", formatPercent(arm.testError)],
      ["Flash", formatBytes(arm.values.model_size)],
      ["RAM", formatBytes(arm.values.working_memory)],
      ["Latency", formatSeconds(arm.values.latency)],
      ["MACs", formatCount(r.n_macs)],
      ["Weights", formatCount(r.n_parameters)],
      ["Non-zeros", formatCount(r.n_nonzero)],
      ["Pruned", formatPercent(arm.sparsity)],
      ["Epochs", `${arm.epochs}, best ${arm.bestEpoch}`],
      ["Trained in", arm.seconds === null ? "–" : `${number(arm.seconds)} s`],
      ["Origin", arm.origin],
      ["Parent", arm.parent ?? "–"],
    ];
    return h("dl", { class: "facts" }, ...rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
  }

  const shape = (dims) => dims.join("×");
  const shapes = (list) => list.map(shape).join(", ");

  function layers(arm) {
    const table = DATA.layers[arm.name];
    if (!table) {
      const why = arm.front
        ? "This run keeps no layer table of the arm; runs made by earlier versions do not."
        : "Layers are kept for the arms on the front of the run only.";
      return h("p", { class: "hint" }, why);
    }
    const most = Math.max(...table.map((l) => l.seconds), 1e-12);
    const sum = (key) => table.reduce((total, l) => total + l[key], 0);
    const header = ["Operator", "Output", "Weights", "MACs", "Flash", "Time"];
    const total = ["All", "", formatCount(sum("parameters")), formatCount(sum("macs")), formatBytes(sum("weightBytes")), formatSeconds(sum("seconds"))];
    return h(
      "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Layers" },
      h(
        "table", { class: "layers" },
        h("caption", {}, `Layers (${table.length} operators)`),
        h("thead", {}, h("tr", {}, ...header.map((name, i) => h("th", { scope: "col", class: i > 2 ? "number" : null }, name)))),
        h("tbody", {}, ...table.map((layer) => layerRow(layer, most))),
        h("tfoot", {}, h("tr", {}, ...total.map((text, i) => h(i ? "td" : "th", { scope: i ? null : "row", class: i > 2 ? "number" : null }, text)))),
      ),
    );
  }

  function layerRow(layer, most) {
    const kind = layer.kind.replaceAll("_", " ") + (layer.activation ? ` + ${layer.activation}` : "");
    const kept = layer.parameters ? `${number((100 * layer.nonzero) / layer.parameters, 2)} % non-zero` : "";
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", layer.seconds / most);
    return h(
      "tr", {},
      h("th", { scope: "row" }, kind, h("small", {}, layer.module)),
      h("td", {}, shapes(layer.outputs), h("small", {}, `from ${shapes(layer.inputs)}`)),
      h("td", {}, layer.weights.length ? shapes(layer.weights) : "–", h("small", {}, kept)),
      h("td", { class: "number" }, formatCount(layer.macs)),
      h("td", { class: "number" }, formatBytes(layer.weightBytes)),
      h("td", { class: "number" }, formatSeconds(layer.seconds), bar),
    );
  }

  function parameters(arm) {
    const entries = Object.entries(arm.parameters);
    return h(
      "details", { class: "parameters", open: entries.length <= 24 ? "" : null },
      h("summary", {}, `${entries.length} parameters`),
      h("dl", { class: "facts" }, ...entries.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", { title: String(v) }, formatValue(v))))),
    );
  }

  function leave() {
    update({ selected: null });
    byId("front-chart").dispatchEvent(new Event("return-focus"));
  }

  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    byId("front-chart").dispatchEvent(new Event("return-focus"));
  });
  onUpdate(draw);
})();
