// The table of averages.

const someBytes = (count) => count > 0 ? bytes(count) : "";
const COLUMNS = [
  { name: "name", isText: true }, { name: "worker", isText: true },
  { name: "calls", show: grouped }, { name: "failed", show: (count) => count > 0 ? `✕ ${grouped(count)}` : "", looks: "bad" },
  { name: "self", show: time, hasShare: true }, { name: "total", show: time, hasShare: true },
  { name: "mean", show: time }, { name: "p50", show: time }, { name: "p99", show: time },
  { name: "bytes", show: someBytes, hint: "of requests and replies" },
  ...(profile.averages.some((average) => average.tensor_bytes > 0) ? [{ name: "tensor_bytes", title: "tensors", show: someBytes, hint: "bytes of tensors that it created or carried" }] : []),
];
let order = { column: "total", isAscending: false };

/** Whether rows are per worker. Equal work of 64 workers is easier to read as one row. */
let isByWorker = workers.length <= 8;

/** The averages of all workers together, by name. */
let merged = null;
function mergedAverages() {
  if (merged) return merged;
  const groups = new Map();
  for (const average of profile.averages) pushTo(groups, plainName(average.name), average);
  merged = [...groups].map(([name, parts]) => {
    const sum = (column) => parts.reduce((all, part) => all + (part[column] ?? 0), 0);
    const times = Float64Array.from(parts.flatMap((part) => profile.eventsByKey.get(part.worker)?.get(part.name) ?? []), duration).sort();
    const at = (share) => times[Math.max(Math.ceil(times.length * share) - 1, 0)] ?? 0;
    const calls = sum("calls");
    return {
      name, worker: counted(new Set(parts.map((part) => part.worker)).size, "worker"), calls, failed: sum("failed"), self: sum("self"), total: sum("total"),
      mean: sum("total") / (calls || 1), p50: at(0.5), p99: at(0.99), bytes: sum("bytes"), tensor_bytes: sum("tensor_bytes"), isMerged: true,
    };
  });
  return merged;
}
choice(byId("grouping"), [[true, "Each worker"], [false, "All together"]], isByWorker, (each) => { isByWorker = each; fillAverages(); });

function sortBy({ name, isText }) {
  order = { column: name, isAscending: order.column === name ? !order.isAscending : Boolean(isText) };
  fillAverages();
}

function averageRow(average, largest) {
  const { what, calls } = splitName(average.name);
  const choose = () => showHighlight({ ...(average.isMerged ? alikeAnywhere(average.name) : alike(average.name, average.worker)), average });
  const behalf = calls.length === 0 ? null : el("span", { class: "behalf" }, breakable(calls.reverse().map((call) => `for ${call}`).join(", ")));
  const numbers = COLUMNS.slice(2).map(({ name, show, hasShare, looks }) => el("td", {
    class: `number ${looks ?? ""} ${hasShare ? "share" : ""}`,
    style: hasShare ? { "--part": average[name] / (largest[name] || 1) } : {},
  }, show(average[name])));
  return el("tr", { class: highlight?.average === average ? "chosen" : null, onclick: choose },
    el("td", {}, el("button", { class: "link", title: average.name }, breakable(what)), behalf), el("td", {}, average.worker), numbers);
}

function fillAverages() {
  const { tHead, tBodies: [body] } = byId("averages");
  const focused = document.activeElement?.dataset.column;
  tHead.replaceChildren(el("tr", {}, COLUMNS.map((column) => el("th", {
    scope: "col", class: column.isText ? null : "number",
    "aria-sort": order.column !== column.name ? null : order.isAscending ? "ascending" : "descending",
    title: column.hint ?? null,
  }, el("button", { class: "sort", "data-column": column.name, onclick: () => sortBy(column) }, column.title ?? column.name)))));
  tHead.querySelector(`[data-column="${focused}"]`)?.focus();
  const words = byId("filter").value.trim().toLowerCase();
  const all = isByWorker ? profile.averages : mergedAverages();
  const kept = all.filter((average) => `${average.worker}\n${average.name}`.toLowerCase().includes(words));
  kept.sort((one, other) => {
    const [a, b] = (order.isAscending ? [one, other] : [other, one]).map((average) => average[order.column]);
    return typeof a === "string" ? a.localeCompare(b) : a - b;
  });
  const largest = all.reduce((most, { self, total }) => ({ self: Math.max(most.self, self), total: Math.max(most.total, total) }), { self: 0, total: 0 });
  paged(kept, 300, body, byId("averages-more"), (average) => averageRow(average, largest));
  if (kept.length === 0) body.append(el("tr", {}, el("td", { colspan: COLUMNS.length, class: "muted" }, all.length === 0 ? "There are no events." : "Nothing matches the filter.")));
  byId("shown").textContent = words === "" ? counted(all.length, "row") : `${grouped(kept.length)} of ${counted(all.length, "row")}`;
}
byId("filter").addEventListener("input", fillAverages);
