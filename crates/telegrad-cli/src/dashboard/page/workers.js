// The table of workers, with a small chart per cell.

const SMALL = 300;
/** With more workers, rows are compact by default. */
const MOST_ROOMY = 12;
let isCompact = null;
byId("worker-filter").addEventListener("input", () => showWorkers());
byId("compact").addEventListener("click", () => { isCompact = byId("compact").getAttribute("aria-pressed") !== "true"; showWorkers(); });
/** The columns: heading, sort key, and text; or two values with a small chart. */
const count = (name) => ({ counters }) => counters[name];
const pair = (a, b) => ({ counters }) => `${grouped(counters[a])} / ${grouped(counters[b])}`;
const columns = [
  { title: "Worker", by: null },
  { title: "In\u00a0flight", by: count("calls_out"), text: ({ counters }) => grouped(counters.calls_out), hint: "calls made that are in flight" },
  { title: "Calls per second", by: "made", duo: [["made", "made"], ["served", "served"]], format: perSecond },
  { title: "Bytes per second", by: "received", duo: [["received", "in"], ["sent", "out"]], format: bytesPerSecond },
  { title: "Latency", by: "p99", duo: [["p50", "p50"], ["p99", "p99"]], format: span, isLog: true, hint: "median and 99th percentile of the calls that have ended since the last update" },
  { title: "Queued", by: count("queued"), text: ({ counters }) => grouped(counters.queued), warns: ({ counters }) => counters.queued > 0 && counters.idle_threads === 0, hint: "calls that wait for a thread" },
  { title: "Running / blocked", by: count("blocked"), text: pair("running", "blocked"), warns: ({ counters }) => counters.blocked > 0 && counters.blocked >= counters.threads },
  { title: "Idle / threads", by: count("idle_threads"), text: pair("idle_threads", "threads") },
  { title: "References owned\u00a0/\u00a0held", by: count("references_held"), text: pair("references_owned", "references_held"), hint: "to its own values, and held to values of any worker" },
  { title: "Contexts", by: count("contexts"), text: ({ counters }) => grouped(counters.contexts), hint: "autograd contexts" },
];
let sorting = { column: columns[0], isDown: false };
const seen = new Set(), watcher = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) if (isIntersecting) seen.add(target); else seen.delete(target);
  later("small", paintSmall);
});
for (const column of columns) {
  column.head = el("th", { scope: "col", class: column.text ? "number" : null, title: column.hint ?? null }, el("button", { class: "sort", onclick() {
    sorting = { column, isDown: sorting.column === column ? !sorting.isDown : column.by !== null };
    showWorkers();
  } }, column.title), column.duo ? el("span", { class: "two-lines", "aria-hidden": "true" }, column.duo.map(([, label], at) => el("span", { class: at === 1 ? "two" : null }, label))) : "");
  byId("workers").tHead.rows[0].append(column.head);
}
function makeRow(worker) {
  const button = el("button", { class: "name", "aria-expanded": false, onclick() { worker.isOpen = !worker.isOpen; showWorkers(); } });
  const pin = el("button", { class: "pin", title: "Emphasise in the charts", onclick() { toggleChosen(worker); } });
  const cells = columns.slice(1).map((column) => {
    if (!column.duo) return el("td", { class: "number" }, el("div", { class: "cell" }));
    const parts = column.duo.flatMap(([, label], at) => [el("span", { class: at === 1 ? "two" : null }, label), el("b")]);
    return el("td", {}, el("div", { class: "duo" }, parts, el("canvas", { "aria-hidden": "true" })));
  });
  const row = el("tr", { "data-testid": `worker-${worker.rank}` }, el("th", { scope: "row" }, pin, button, el("span", { class: "under" })), cells);
  row.of = worker;
  watcher.observe(row);
  return row;
}
const counterName = (name) => name.replaceAll("_", " ");
function showMore(worker, entry) {
  worker.more ??= el("tr", { class: "more" }, el("td", { colspan: columns.length }, el("h3", {}, "All counters"), el("dl", { class: "facts" }), el("h3", {}, "Latency by destination: p50 / p99 (calls)"), el("dl", { class: "facts" })));
  const fact = () => el("div", {}, el("dt"), el("dd"));
  const put = (node, [name, text]) => { write(node.firstElementChild, name); write(node.lastElementChild, text); };
  const [counters, latency] = worker.more.querySelectorAll("dl");
  fill(counters, [["process", String(entry?.process ?? "–")], ...Object.entries(entry?.counters ?? {}).map(([name, value]) => [counterName(name), grouped(value)])], fact, put);
  fill(latency, [...entry?.recent ?? []].map(([to, counts]) => [`to ${nameOf(to)}`, `${span(percentile(counts, 0.5))} / ${span(percentile(counts, 0.99))} (${amount(sumOf(counts))})`]), fact, put);
  return worker.more;
}
function showWorkers() {
  const { world, silent } = latest, { by } = sorting.column;
  const key = (worker) => typeof by === "string" ? newest(worker.series, by) : by(world.get(worker.rank) ?? { counters: {} });
  // Silent workers and unknown values come last.
  const words = byId("worker-filter").value.trim().toLowerCase();
  const all = byRank().filter(({ rank }) => world.has(rank) || silent.includes(rank));
  const shown = all.filter(({ name, rank }) => words === "" || name.toLowerCase().includes(words) || String(rank) === words);
  if (by === null && sorting.isDown) shown.reverse();
  if (by !== null) {
    const keys = new Map(shown.map((worker) => [worker, key(worker)])), sign = sorting.isDown ? -1 : 1;
    shown.sort((a, b) => isNumber(keys.get(a)) && isNumber(keys.get(b)) ? sign * (keys.get(a) - keys.get(b)) : isNumber(keys.get(b)) - isNumber(keys.get(a)));
  }
  for (const column of columns) {
    if (column === sorting.column) column.head.setAttribute("aria-sort", sorting.isDown ? "descending" : "ascending"); else column.head.removeAttribute("aria-sort");
  }
  const rows = [];
  for (const worker of shown) {
    const entry = world.get(worker.rank), row = worker.row ??= makeRow(worker), [head, ...cells] = row.cells, [pin, name, under] = head.children;
    row.classList.toggle("silent", !entry);
    pin.setAttribute("aria-pressed", worker.isChosen);
    pin.setAttribute("aria-label", `Emphasise ${worker.name} in the charts`);
    write(name, worker.name);
    name.setAttribute("aria-expanded", worker.isOpen);
    write(under, entry ? `rank ${worker.rank}${entry.process === undefined ? "" : ` · ${entry.process}`}` : "✕ no answer");
    columns.slice(1).forEach((column, at) => {
      if (column.duo) column.duo.forEach(([metric], line) => write(cells[at].querySelectorAll("b")[line], column.format(newest(worker.series, metric))));
      else write(cells[at].firstElementChild, entry ? column.text(entry) : "–");
      cells[at].firstElementChild.classList.toggle("warn", Boolean(entry && column.warns?.(entry)));
    });
    rows.push(row);
    if (worker.isOpen) rows.push(showMore(worker, entry));
  }
  const body = byId("workers").tBodies[0];
  if (rows.length !== body.rows.length || rows.some((row, at) => body.rows[at] !== row)) {
    const focused = document.activeElement;
    for (const row of body.rows) if (!rows.includes(row)) { seen.delete(row); }
    body.replaceChildren(...rows);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }
  byId("workers").hidden = rows.length === 0;
  byId("no-workers").hidden = rows.length > 0;
  write(byId("no-workers"), all.length > 0 ? "No worker matches the filter." : "No worker answers: none has joined yet, or all have left.");
  write(byId("workers-note"), shown.length < all.length ? `${shown.length} of ${all.length}` : "");
  const isDense = isCompact ?? all.length > MOST_ROOMY;
  byId("workers").classList.toggle("dense", isDense);
  byId("compact").setAttribute("aria-pressed", isDense);
  later("small", paintSmall);
}
/** Draws the small charts of the visible rows. */
function paintSmall() {
  const { start, end, from } = recent(SMALL, 30);
  // One scale of latencies for all rows, in powers of ten.
  let [low, high] = [Infinity, 0];
  for (const { series } of workers.values()) {
    for (let at = from; at < length; at++) {
      if (series.p50[at] > 0 && series.p50[at] < low) low = series.p50[at];
      if (series.p99[at] > high) high = series.p99[at];
    }
  }
  [low, high] = [Math.floor(Math.log10(low < Infinity ? low : 1e-6)), Math.ceil(Math.log10(high || 1))];
  for (const row of seen) {
    const canvases = row.querySelectorAll("canvas"), { series } = row.of;
    columns.filter(({ duo }) => duo).forEach((column, number) => {
      const canvas = canvases[number], width = canvas.clientWidth, height = canvas.clientHeight;
      if (width < 10) return;
      const pen = penOf(canvas, width, height), values = column.duo.map(([metric]) => series[metric]);
      let most = 0;
      if (!column.isLog) for (const line of values) for (let at = from; at < length; at++) if (line[at] > most) most = line[at];
      const share = column.isLog ? (value) => (Math.log10(Math.max(value, 1e-9)) - low) / Math.max(high - low, 1) : (value) => value / (most || 1);
      pen.fillStyle = theme.line;
      pen.fillRect(0, height - 1, width, 1);
      Object.assign(pen, { lineWidth: 1.4, lineJoin: "round" });
      [[theme.accent, []], [theme.second, [4, 2]]].forEach(([strokeStyle, dash], line) => {
        pen.strokeStyle = strokeStyle;
        pen.setLineDash(dash);
        trace(pen, values[line], from, (time) => (time - start) / (end - start) * (width - 1), (value) => height - 2 - share(value) * (height - 5));
      });
    });
  }
}
