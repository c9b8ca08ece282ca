// A step: the time of the workers, and its critical path.

const section = (heading, ...children) => el("section", {}, el("h2", {}, heading), ...children);
/** A table with numbers from the third column on. */
const tableOf = (columns, body) => el("div", { class: "card limited", tabindex: 0 }, el("table", {},
  el("thead", {}, el("tr", {}, columns.map((name, at) => el("th", { scope: "col", class: at > 1 ? "number" : null }, name)))), body));

/** Selects a step by its number. */
function chooseStep(number) {
  takeStep(number);
  markCritical(showsCritical);
  fillCritical();
  writeFragment();
}
/** Shows the selected step in the timeline, with its critical path. */
function showStep() {
  openTab("timeline");
  moveTo(step.start - step.duration * 0.02, step.end + step.duration * 0.02);
  markCritical(true);
  writeFragment();
}
/** The selection of a step; empty if there is only the whole recording. */
function stepBar() {
  const at = steps.indexOf(step);
  const go = (by) => () => { chooseStep(at + by); byId(by < 0 ? "step-before" : "step-after").focus(); };
  const select = el("select", { class: "field", id: "step", "data-testid": "step", onchange() { chooseStep(Number(select.value)); byId("step").focus(); } },
    steps.map((step, number) => el("option", { value: number }, `${step.label}, ${time(step.duration)}`)));
  select.value = at;
  const button = (id, label, by) => el("button", { class: "button", id, "aria-label": label, onclick: go(by), ...(steps[at + by] ? {} : { disabled: "" }) }, by < 0 ? "‹" : "›");
  const choice = steps.length < 2 ? [] : [el("label", { for: "step" }, "Step"), select, el("div", { class: "group" }, button("step-before", "Previous step", -1), button("step-after", "Next step", 1))];
  return el("div", { class: "bar toolbar" }, choice, el("button", { class: "button", id: "step-timeline", "data-testid": "step-timeline", onclick: showStep }, "Show in the timeline"),
    profile.leftOut === 0 ? null : el("span", { class: "muted", "data-testid": "steps-note" }, leftOutNote()));
}
/** The note about steps that are not on the page. */
function leftOutNote() {
  const here = steps.filter(({ isWhole }) => !isWhole).length;
  return `${grouped(here)} of ${grouped(here + profile.leftOut)} steps are on this page: the longest, the first, the last, and a sample of the others from each worker.`;
}

function fillCritical() {
  const page = byId("critical-inner");
  page.replaceChildren();
  if (!step) {
    page.append(section("Critical path", el("p", { class: "card padded muted" }, "There is no step: the recording has no events.")));
    return;
  }
  const { critical, usages } = step, list = el("ol", { class: "path", "data-testid": "critical" });
  const full = step.duration > 0 ? step.duration : 1;
  const longest = usages.reduce((most, usage) => !most || usage.waiting > most.waiting ? usage : most, null);
  const stat = (name, value, note) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  page.append(stepBar(), el("dl", { class: "stats", "data-testid": "step-facts" },
    stat("Step", step.name, `${step.isWhole ? "" : `${step.which}, `}${counted(critical.length, "piece")} on its critical path`),
    stat("Duration", time(step.duration), "from its start to its end"),
    stat("Bubble", percent(step.bubble ?? NaN), "of the workers' time was idle or waiting"),
    longest?.waiting > 0 ? stat("Longest wait", longest.worker, `${time(longest.waiting)}, ${percent(longest.waiting / full)} of the step`) : stat("Longest wait", "none", "no worker waited for another")));

  const SHARES = { busy: "recorded work ran", waiting: "for other workers", idle: "no recorded work ran" };
  const usageRow = (usage) => el("tr", {}, el("th", { scope: "row" }, usage.worker),
    el("td", {}, el("div", { class: "usage", "aria-hidden": true }, Object.keys(SHARES).map((name) => el("span", { class: name, style: { width: `${100 * usage[name] / full}%` } })))),
    Object.keys(SHARES).map((name) => el("td", { class: "number", title: time(usage[name]) }, percent(usage[name] / full))));
  // Workers without known events are not idle but unknown.
  const unknownRow = ({ name }) => el("tr", { class: "muted" }, el("th", { scope: "row" }, name), el("td", { colspan: 4 }, "its events are unknown"));
  page.append(section("Time of the workers",
    el("div", { class: "legend" }, Object.entries(SHARES).map(([name, what]) => el("span", {}, el("span", { class: `swatch ${name}` }), `${name}: ${what}`))),
    tableOf(["worker", "share of the step", ...Object.keys(SHARES)], el("tbody", { "data-testid": "usage" }, usages.map(usageRow), workers.filter(({ isKnown }) => !isKnown).map(unknownRow)))));
  if (critical.some(({ worker }) => worker !== "")) page.append(section("Workers on the path", stairs(critical)));

  const sums = new Map();
  for (const { worker, name, start, end } of critical) {
    const key = `${worker}\n${name}`;
    if (!sums.has(key)) sums.set(key, { worker, name, spent: 0, pieces: 0 });
    sums.get(key).spent += end - start;
    sums.get(key).pieces++;
  }
  const link = (name, worker, onclick) => worker === "" ? el("span", { class: "muted" }, name) : el("button", { class: "link", title: name, onclick }, breakable(splitName(name).what));
  const body = el("tbody"), bodyMore = el("div"), listMore = el("div");
  const ranked = [...sums.values()].sort((a, b) => b.spent - a.spent);
  paged(ranked, 12, body, bodyMore, ({ name, worker, pieces, spent }) => el("tr", {},
    el("td", {}, link(name, worker, () => showHighlight(alike(name, worker)))), el("td", {}, worker || "–"),
    el("td", { class: "number" }, grouped(pieces)), el("td", { class: "number" }, time(spent)),
    el("td", { class: "number share", style: { "--part": spent / (ranked[0].spent || 1) } }, percent(spent / full))));
  paged(critical, 100, list, listMore, ({ event, name, worker, start, end }, at) => el("li", {},
    el("span", { class: "muted number" }, `${at + 1}.`), el("span", {}, worker || "–"), link(name, worker, () => select(event, true)), el("span", { class: "number" }, time(end - start))));
  page.append(el("div", { class: "columns" },
    section("Path by name", tableOf(["name", "worker", "pieces", "time", "share"], body), bodyMore),
    section("Path by piece", el("div", { class: "card" }, list), listMore)));
}

/** A chart of the worker of the path over time. The list has the same information as text. */
function stairs(path) {
  const critical = path.filter(({ worker }) => worker !== ""), onPath = new Set(critical.map(({ worker }) => worker));
  const names = [...new Set([...workers.map((worker) => worker.name), ...onPath])].filter((name) => onPath.has(name));
  const from = path[0].start, span = Math.max(path.at(-1).end - from, 1e-9);
  const height = names.length * 22, heights = new Map(names.map((name, at) => [name, at * 22 + 5]));
  const changes = critical.filter(({ worker }, at) => at > 0 && worker !== critical[at - 1].worker).length;
  const picture = (changes > 400 ? shades : boxes)(critical, heights, from, span);
  return el("div", { class: "card padded stairs limited", "aria-hidden": true }, el("ul", { class: "plain" }, names.map((name) => el("li", {}, name))),
    svg("svg", { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none", height }, picture));
}

/** The consecutive workers of a path with their durations, connected by lines. */
function boxes(critical, heights, from, span) {
  const x = (at) => Number(((at - from) / span * 1000).toFixed(2));
  let pieces = "", lines = "";
  for (let at = 0; at < critical.length;) {
    // Joins consecutive pieces on the same worker.
    const { worker } = critical[at], y = heights.get(worker), left = x(critical[at].start);
    if (at > 0) lines += `M${left} ${heights.get(critical[at - 1].worker) + 5.5}V${y + 5.5}`;
    while (critical[at + 1]?.worker === worker && critical[at + 1].start === critical[at].end) at++;
    pieces += `M${left} ${y}H${Math.max(x(critical[at].end), left + 0.6)}v11H${left}z`;
    at++;
  }
  return [svg("path", { d: lines, stroke: "var(--critical)", "stroke-opacity": 0.5, "vector-effect": "non-scaling-stroke" }), svg("path", { d: pieces, fill: "var(--critical)" })];
}

/** The same for a path with too many changes: deeper colours mean a larger share of time on the worker. */
function shades(critical, heights, from, span) {
  const COLUMNS = 250, LEVELS = 8, width = 1000 / COLUMNS;
  const shares = new Map([...heights.keys()].map((name) => [name, new Float64Array(COLUMNS)]));
  for (const { worker, start, end } of critical) {
    const share = shares.get(worker), until = (end - from) / span * COLUMNS;
    for (let at = (start - from) / span * COLUMNS; at < until;) {
      const column = Math.min(Math.floor(at), COLUMNS - 1), next = Math.min(column + 1, until);
      share[column] += next - at;
      if (column === COLUMNS - 1) break;
      at = next;
    }
  }
  const levels = Array.from({ length: LEVELS + 1 }, () => "");
  for (const [name, share] of shares) share.forEach((part, column) => { levels[clamp(Math.ceil(part * LEVELS), 0, LEVELS)] += `M${column * width} ${heights.get(name)}h${width}v11h-${width}z`; });
  return levels.slice(1).map((d, level) => svg("path", { d, fill: "var(--critical)", "fill-opacity": (level + 1) / LEVELS }));
}
