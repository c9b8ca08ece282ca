// The side panel: details of the selected event, or the legend and the keys.

const swatch = (kind, looks = "") => el("span", { class: `swatch ${kind} ${looks}`, style: { "--fill": `var(--${kind})`, "--edge": `var(--${kind}-edge)` } });

function eventLink(event) {
  const link = el("button", { class: "link", onclick: () => select(event, true) }, breakable(labelOf(event)));
  return el("li", {}, el("span", {}, swatch(isBad(event) ? "failed" : event.kind), link), el("span", { class: "muted number" }, time(duration(event))));
}

function linkList(heading, list) {
  if (list.length === 0) return [];
  const into = el("ul", { class: "plain" }), more = el("div");
  paged(list, 50, into, more, eventLink);
  return [el("h3", {}, list.length > 1 ? `${heading} (${grouped(list.length)})` : heading), into, more];
}

const factList = (facts) => el("dl", { class: "facts-list" },
  facts.filter(([, value]) => (value ?? "") !== "").flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/** The phases of a call, as shares of its duration. */
function phaseBar(call) {
  const parts = partsOf(call), share = ({ took }) => took / (duration(call) || 1);
  const bar = parts.map((part) => el("span", { style: { width: `${100 * share(part)}%`, background: `var(--${part.kind}-edge)` } }));
  const rows = parts.map((part) => el("li", { title: `${part.name}: ${part.until}` }, el("span", {}, swatch(part.kind, "full"), part.name),
    el("span", { class: "number" }, `${time(part.took)} `, el("span", { class: "muted" }, `· ${percent(share(part))}`))));
  return [el("h3", {}, "Phases"), el("div", { class: "phases", "aria-hidden": true }, bar), el("ul", { class: "plain", "data-testid": "phases" }, rows)];
}

function eventDetails(event) {
  const worker = nameOf(event.worker);
  const linked = (profile.eventsByLink.get(event.link) ?? []).filter((other) => other !== event);
  return [
    el("h2", {}, breakable(event.name)),
    el("div", { class: "bar" },
      el("button", { class: "button", onclick: () => zoomTo(event) }, "Zoom to it"),
      el("button", { class: "button", onclick: () => setHighlight(alike(event.key, worker)) }, "Highlight equal events"),
      el("button", { class: "button", "aria-label": "Clear the selection", onclick: () => select(null) }, "✕")),
    el("h3", {}, "Details"),
    factList([
      ["Kind", el("span", {}, swatch(event.kind), event.kind)],
      ["Status", el("span", { class: isBad(event) ? "bad" : null }, markOf(event) + event.status)],
      ["Worker", `${worker}, ${event.lane.row.name}`],
      [event.kind === "execution" ? "Called by" : "Goes to", event.peer !== null ? nameOf(event.peer) : null],
      ["Start", moment(event.start)],
      ["End", moment(event.end)],
      ["Duration", time(duration(event))],
      ["Bytes", event.bytes > 0 ? bytes(event.bytes) + (event.bytes >= 1e3 ? ` (${grouped(event.bytes)})` : "") : null],
      ["Tensors", event.tensorBytes > 0 ? bytes(event.tensorBytes) : null],
      ["Shapes", event.shapes],
      ["Key", event.key === event.name ? null : el("span", {}, breakable(event.key))],
    ]),
    ...(event.phases ? phaseBar(event) : []),
    ...(event.parent ? linkList("Part of", [event.parent]) : event.isOrphan ? [el("h3", {}, "Part of"), "an event that was not recorded"] : []),
    ...linkList("Forward and backward links", linked),
    ...linkList("Children", childrenOf(event)),
  ];
}

/** The panel without a selection: colours and keys. */
const KEYS = [
  [["w", "s"], "zoom in and out (or use the wheel)"], [["a", "d"], "pan left and right (or drag)"], [["0"], "show everything"],
  [["f"], "zoom to the selected event"], [["c"], "critical path"], [["x"], "collapse or expand all"], [["/"], "search; Enter for the next"],
  [["Arrows"], "move between events"], [["Shift"], "with the wheel: scroll"], [["Esc"], "clear the selection"],
];
function profileDetails() {
  const counts = new Map(KINDS.map((kind) => [kind, 0]));
  for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const row = (kind, label, count, test) => el("li", {},
    el("span", {}, swatch(kind), el("button", { class: "link", onclick: () => setHighlight({ label, test }) }, label)),
    el("span", { class: "muted number" }, grouped(count)));
  return [
    el("h3", {}, "Kinds of events"),
    el("ul", { class: "plain" },
      [...counts].map(([kind, count]) => row(kind, kind, count, (event) => event.kind === kind)),
      row("failed", "✕ failed, ! timed out, – cancelled", profile.failures, isBad)),
    el("h3", {}, "Keys"),
    factList(KEYS.map(([keys, what]) => [el("span", {}, keys.flatMap((key) => [el("kbd", {}, key), " "])), what])),
    el("h3", {}, "Select"),
    el("p", { class: "muted" }, "Click an event for its details; double-click to zoom to it. A call has an arrow to its execution, and a dashed one for the reply."),
  ];
}
