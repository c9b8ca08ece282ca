// Calls in flight: by pair of workers, the oldest, and the chains of waits.

/** The last two segments of a path, for narrow columns. */
const lastOf = (name) => name.includes("<") ? name : name.split("::").slice(-2).join("::");
const MOST_CALLS = 60, MOST_CHAINS = 60;
function showCalls() {
  const { calls, allCalls } = latest;
  const words = byId("call-filter").value.trim().toLowerCase();
  const texts = (call) => `${call.name}\n${nameOf(call.caller)} → ${nameOf(call.callee)}\n${call.state}`.toLowerCase();
  const kept = words === "" ? calls : calls.filter((call) => texts(call).includes(words));
  const make = () => el("tr", {}, el("td", { class: "number" }), el("td", { class: "function" }, el("code"), " ", el("small", { class: "muted" })), el("td"), el("td"));
  fill(byId("calls").tBodies[0], kept.slice(0, MOST_CALLS), make, ({ cells }, { age, name, caller, callee, call, state, within, makes }) => {
    write(cells[0], span(age));
    write(cells[1].firstElementChild, lastOf(String(name ?? "?")));
    write(cells[1].lastElementChild, `call ${call ?? "?"}${makes ? ", creates a value" : ""}${within.length === 2 ? `, made within ${within[1]} of ${nameOf(within[0])}` : ""}`);
    cells[1].title = `${name ?? "?"}, ${cells[1].lastElementChild.textContent}`;
    write(cells[2], `${nameOf(caller)} → ${nameOf(callee)}`);
    write(cells[3], state);
    cells[3].className = state === "runs" ? "muted" : state === "unknown to the callee" ? "bad" : "";
  });
  byId("calls").hidden = kept.length === 0;
  byId("no-calls").hidden = kept.length > 0;
  write(byId("no-calls"), calls.length > 0 ? "No call matches the filter." : "No call is in flight.");
  // Only the oldest calls are listed.
  const all = words === "" ? allCalls : kept.length, shown = Math.min(kept.length, MOST_CALLS);
  write(byId("calls-note"), all > shown ? `${shown} of ${grouped(all)}` : all > 0 ? counted(all, "call") : "");
}
byId("call-filter").addEventListener("input", showCalls);

let matrixKind = "calls", matrixKey = "";
const cells = new Map();
choice(byId("matrix-kind"), [["calls", "calls in flight"], ["latency", "latency"]], matrixKind, (kind) => { matrixKind = kind; showMatrix(); });
const map = heatMap(byId("map"), { describe: (pair) => pair?.text ?? (matrixKind === "calls" ? "no call in flight" : "no call since the last update") });
/** Rebuilds the table of calls by pair when the workers have changed. */
function layMatrix(ranks) {
  const key = JSON.stringify(ranks.map((rank) => [rank, nameOf(rank), latest.world.has(rank)]));
  if (key === matrixKey) return;
  matrixKey = key;
  cells.clear();
  const table = byId("matrix"), label = (rank) => `${nameOf(rank)}${latest.world.has(rank) ? "" : " ✕"}`;
  table.tHead.replaceChildren(el("tr", {}, el("th", {}, "from ↓ to →"), ranks.map((rank) => el("th", { scope: "col" }, label(rank)))));
  table.tBodies[0].replaceChildren(...ranks.map((from) => el("tr", {}, el("th", { scope: "row" }, label(from)), ranks.map((to) => {
    const cell = el("td", { class: "none" }, "·");
    cells.set(`${from}:${to}`, cell);
    return cell;
  }))));
}
/** The colour depth of a duration, on a logarithmic scale from `from` to `to`. */
const depth = (seconds, from, to) => Math.min(Math.max(Math.log(Math.max(seconds, from) / from) / Math.log(to / from), 0.06), 1);
/** The values to show for each pair of workers. */
function pairsOf() {
  const pairs = new Map();
  if (matrixKind === "calls") {
    for (const [from, to, weight, age] of latest.pairs) {
      pairs.set(`${from}:${to}`, { from, to, weight, strong: grouped(weight), small: span(age), part: depth(age, 1e-3, 60), text: `${counted(weight, "call")}, the oldest ${span(age)}` });
    }
    return pairs;
  }
  for (const [from, { recent }] of latest.world) {
    for (const [to, counts] of recent) {
      const [p50, p99, weight] = [percentile(counts, 0.5), percentile(counts, 0.99), sumOf(counts)];
      pairs.set(`${from}:${to}`, { from, to, weight, strong: span(p99), small: span(p50), part: depth(p99, 1e-5, 1), text: `p50 ${span(p50)}, p99 ${span(p99)} of ${counted(weight, "call")}` });
    }
  }
  return pairs;
}
let filled = new Map();
function showMatrix() {
  const { world, silent } = latest, pairs = pairsOf();
  const ranks = [...new Set([...world.keys(), ...silent, ...latest.pairs.flatMap(([from, to]) => [from, to])])].filter(isNumber).sort((a, b) => a - b);
  const isMany = ranks.length > MOST_IN_TABLE;
  byId("pairs-columns").classList.toggle("map", isMany);
  byId("no-pairs").hidden = ranks.length > 0;
  byId("matrix").hidden = isMany || ranks.length === 0;
  byId("map").hidden = !isMany;
  const note = ranks.length === 0 ? "" : matrixKind === "calls" ? (isMany ? "colour: age of the oldest call; bars: number of calls" : "number of calls, and age of the oldest") : isMany ? "colour: p99 since the last update" : "p99 and p50 since the last update";
  write(byId("matrix-note"), note);
  const stuck = matrixKind === "calls" ? stuckPairs() : new Set();
  if (isMany) {
    const place = new Map(ranks.map((rank, at) => [rank, at]));
    map.show(ranks.map(nameOf), [...pairs.values()].filter(({ from, to }) => place.has(from) && place.has(to)).map((pair) => ({
      ...pair, row: place.get(pair.from), column: place.get(pair.to), isBad: stuck.has(`${pair.from}:${pair.to}`),
    })));
    byId("map").setAttribute("aria-label", `Calls by pair: ${counted(pairs.size, "pair")} of ${ranks.length} workers. The arrow keys move between pairs.`);
    return;
  }
  layMatrix(ranks);
  for (const [key, cell] of filled) if (!pairs.has(key)) { cell.className = "none"; write(cell, "·"); cell.style.removeProperty("--part"); }
  filled = new Map();
  for (const [key, { strong, small, part }] of pairs) {
    const cell = cells.get(key);
    if (!cell) continue;
    filled.set(key, cell);
    if (!cell.firstElementChild) cell.replaceChildren(el("b"), el("small"));
    cell.className = stuck.has(key) ? "stuck" : "";
    write(cell.firstElementChild, strong);
    write(cell.lastElementChild, small);
    cell.style.setProperty("--part", part.toFixed(2));
  }
}

/** Pairs of workers that wait for each other in a cycle. */
function stuckPairs() {
  return new Set(latest.chains.flatMap(({ calls }) => calls).filter(({ isStuck }) => isStuck).map(({ caller, on }) => `${caller}:${on}`));
}
/** The expanded chains. */
const openChains = new Set();
function showChains() {
  const { chains, moreChains, barriers, suspects } = latest, notes = [...barriers.map(String), ...suspects.map((text) => `Possible cycle: ${text}`)];
  byId("notes").hidden = notes.length === 0;
  fill(byId("notes"), notes, () => el("li"), (item, text) => {
    if (item.text === text) return;
    item.text = text;
    item.replaceChildren(...withCode(text));
  });
  const make = () => {
    const details = el("details", { ontoggle() { if (details.open) openChains.add(details.key); else openChains.delete(details.key); } },
      el("summary", {}, el("span", { class: "age number" }), el("span", { class: "way" }), el("span", { class: "end" })), el("div", { class: "chain" }));
    return el("li", {}, details);
  };
  fill(byId("chains"), chains.slice(0, MOST_CHAINS), make, (item, { from, age, isCycle, text, calls }) => {
    const details = item.firstElementChild, [when, way, end] = details.firstElementChild.children, last = calls.at(-1);
    const key = JSON.stringify([from, calls.map(({ name, on }) => [name, on])]), path = [from, ...calls.map(({ on }) => on)].map(nameOf), looks = path.join("\n");
    item.classList.toggle("round", isCycle);
    write(when, span(age));
    if (details.key !== key || details.looks !== looks) way.replaceChildren(...path.flatMap((worker, at) => at > 0 ? [el("i", {}, " → "), worker] : [worker]), " ", el("code", {}, last?.name ?? ""));
    write(end, isCycle ? "⟳ deadlock" : last?.state ?? "");
    Object.assign(details, { key, looks, open: openChains.has(key) });
    if (!details.open || details.text === text) return;
    details.text = text;
    details.lastElementChild.replaceChildren(...text.split("\n").map((line) => el("div", { style: { "--level": (line.length - line.trimStart().length) / 2 } }, withCode(line.trim()))));
  });
  const all = chains.length + moreChains, shown = Math.min(chains.length, MOST_CHAINS);
  byId("no-chains").hidden = all + notes.length > 0;
  write(byId("chains-note"), all > shown ? `${grouped(shown)} of ${grouped(all)}: cycles first, then the longest waits` : all > 0 ? "longer than a second: cycles first, then the longest waits" : "");
}
