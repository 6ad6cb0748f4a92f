// The filters, the axes and the theme; then the first drawing.
(() => {
  const SCALE = { model_size: 1000, working_memory: 1000, latency: 0.001 }; // of the units in the fields
  const fields = Object.fromEntries(Object.keys(SCALE).map((m) => [m, byId(`limit-${m}`)]));
  const board = byId("board");

  function showLimits() {
    for (const [m, field] of Object.entries(fields)) {
      const limit = state.limits[m];
      field.value = limit === null ? "" : Number((limit / SCALE[m]).toPrecision(12));
      field.removeAttribute("aria-invalid");
    }
  }

  for (const [m, field] of Object.entries(fields)) {
    field.addEventListener("input", () => {
      const wrong = !field.validity.valid;
      field.toggleAttribute("aria-invalid", wrong);
      if (wrong) return;
      board.value = "";
      const limit = field.value === "" ? null : Number((Number(field.value) * SCALE[m]).toPrecision(15));
      update({ limits: { ...state.limits, [m]: limit } });
      boardNote();
    });
  }

  board.append(h("option", { value: "" }, "own limits"), h("option", { value: "run" }, "as in the run"), h("option", { value: "none" }, "no limits"));
  for (const b of DATA.boards) {
    const text = `${b.name} – ${Math.round(b.flash / 1024)} KiB flash, ${Math.round(b.ram / 1024)} KiB RAM`;
    board.append(h("option", { value: `board:${b.name}` }, text));
  }
  board.value = "run";
  board.addEventListener("change", () => {
    const none = { model_size: null, working_memory: null, latency: null };
    const chosen = DATA.boards.find((b) => `board:${b.name}` === board.value);
    if (board.value === "run") update({ limits: { ...DATA.limits } });
    else if (board.value === "none") update({ limits: none });
    else if (chosen) {
      const { model_size, working_memory } = chosen;
      update({ limits: { model_size, working_memory, latency: state.limits.latency } });
    }
    showLimits();
    boardNote();
  });
  byId("reset").addEventListener("click", () => {
    board.value = "run";
    board.dispatchEvent(new Event("change"));
  });

  function boardNote() {
    const chosen = DATA.boards.find((b) => `board:${b.name}` === board.value);
    const parts = [];
    if (chosen) parts.push(`Beside the ${DATA.runtime} runtime, ${chosen.name} leaves ${formatBytes(chosen.model_size)} of flash and ${formatBytes(chosen.working_memory)} of RAM.`);
    if (DATA.clockHz !== null) parts.push(`Latencies are those of ${DATA.target || "the target"} at ${number(DATA.clockHz / 1e6)} MHz.`);
    byId("board-note").textContent = parts.join(" ");
  }

  for (const axis of ["x", "y"]) {
    const select = byId(`axis-${axis}`);
    for (const [m, { label }] of Object.entries(METRICS)) select.append(h("option", { value: m }, label));
    select.value = state[axis];
    select.addEventListener("change", () => update({ [axis]: select.value }));
    const box = byId(`log-${axis}`);
    box.checked = true;
    box.addEventListener("change", () => update({ [axis === "x" ? "logX" : "logY"]: box.checked }));
  }
  byId("front-only").checked = false;
  byId("front-only").addEventListener("change", (event) => update({ frontOnly: event.target.checked }));

  const legend = byId("legend");
  for (const stage of new Set(DATA.arms.map((arm) => arm.stage))) legend.append(stageBadge(stage));

  onUpdate(() => {
    const fit = state.fits.length;
    const text = `${fit} of ${COMPLETED.length} arms fit, ${state.front.size} of them on the front`;
    if (byId("filter-result").textContent !== text) byId("filter-result").textContent = text;
    const front = state.fits.filter((arm) => state.front.has(arm.name));
    for (const [m, { format }] of Object.entries(METRICS)) {
      const best = front.reduce((a, b) => (a === null || b.values[m] < a.values[m] ? b : a), null);
      byId(`best-${m}`).textContent = best ? format(best.values[m]) : "–";
      byId(`best-${m}-arm`).textContent = best ? `arm ${best.name}` : "no arm fits";
    }
    byId("front-size").textContent = state.front.size;
  });

  const THEMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const toggle = byId("theme");
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    toggle.textContent = THEMES[theme];
    toggle.dataset.value = theme;
  }
  toggle.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(toggle.dataset.value) + 1) % names.length]);
  });
  setTheme("auto");

  showLimits();
  boardNote();
  update({});
  const best = state.fits.filter((arm) => state.front.has(arm.name)).sort((a, b) => a.values.error - b.values.error)[0];
  if (best) update({ selected: best.name });
  document.documentElement.dataset.ready = "true";
})();
