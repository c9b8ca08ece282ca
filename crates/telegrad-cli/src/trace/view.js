// ---------------------------------------------------------------- Small helpers

/** Microseconds for people. */
const time = (micros) => span(micros / 1e6);
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
/** A moment, to the nanosecond. */
const moment = (micros) => `${(micros / 1e3).toFixed(6)} ms`;
function pushTo(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value); else map.set(key, [value]);
}

/** Shows a list in pieces: `more` gets a button for as long as there is a rest. */
function paged(items, size, into, more, render) {
  let from = 0;
  const show = (press) => {
    into.append(...items.slice(from, from + size).map((item, index) => render(item, from + index)));
    from += size;
    const rest = items.length - from;
    more.replaceChildren(...(rest > 0 ? [el("button", { class: "button more", onclick: show }, `Show more (${grouped(rest)} left)`)] : []));
    if (press) more.firstElementChild?.focus();
  };
  into.replaceChildren();
  show();
}

// ---------------------------------------------------------------- The data

async function readData() {
  try {
    const packed = atob(byId("data").textContent), octets = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) octets[at] = packed.charCodeAt(at);
    const source = new ReadableStream({ start(to) { to.enqueue(octets); to.close(); } });
    const reader = source.pipeThrough(new DecompressionStream("gzip")).getReader(), decoder = new TextDecoder();
    let text = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += decoder.decode(piece.value, { stream: true });
    return JSON.parse(text);
  } catch (error) {
    return { title: "No profile", missing: [["this page", `it holds no profile that could be read: ${error.message}`]] };
  } finally {
    byId("data").remove();
  }
}

const KINDS = ["scope", "operator", "layer", "autograd", "optimizer", "wait", "codec", "call", "execution"];
/** The phases of a call, each with the kind whose colour it has. */
const PHASES = [["encode", "optimizer"], ["wire", "call"], ["queue", "scope"], ["execute", "execution"], ["reply", "autograd"]];

const data = await readData();
const { traffic = [], missing = [] } = data;
/** All times here are in microseconds; those of the data, in nanoseconds. */
const inMicros = (thing, fields) => ({ ...thing, ...Object.fromEntries(fields.map((field) => [field, thing[field] / 1e3])) });
const averages = (data.averages ?? []).map((average) => inMicros(average, ["self", "total", "mean", "p50", "p99"]));
const newWorker = ({ rank, name, rows = [], dropped = 0, known = true }) => ({ rank, name, dropped, isKnown: known, rowNames: rows, rows: [], isCollapsed: false, showsAll: false });
const workers = (data.workers ?? []).map(newWorker);
const workerByRank = new Map(workers.map((worker) => [worker.rank, worker]));
const nameOf = (rank) => workerByRank.get(rank)?.name ?? `worker ${rank}`;

const groupKey = (worker, key) => `${worker}\n${key}`;
const isBad = (event) => event.status !== "ok";
const duration = (event) => event.end - event.start;
const bounds = { start: 0, end: (data.duration ?? 0) / 1e3 };

/** What the columns say of every event, by when it began. */
function readEvents({ start = [], ...columns }, strings) {
  let now = 0;
  const events = start.map((passed, index) => {
    now += passed;
    const peer = columns.peer[index];
    return {
      index,
      start: now / 1e3,
      end: (now + columns.took[index]) / 1e3,
      worker: columns.worker[index],
      row: columns.row[index],
      kind: strings[columns.kind[index]],
      name: strings[columns.name[index]],
      key: strings[columns.key[index]],
      status: strings[columns.status[index]],
      shapes: strings[columns.shapes[index]],
      peer: peer < 0 ? null : peer,
      link: columns.link[index],
      bytes: columns.bytes[index],
      tensorBytes: columns.tensor_bytes[index],
      phases: null,
      parent: null,
      /** Whether there was a parent that is not recorded. */
      isOrphan: columns.parent[index] === -2,
      children: null,
      lane: null,
      slot: 0,
    };
  });
  for (const event of events) {
    event.parent = events[columns.parent[event.index]] ?? null;
    if (event.parent) (event.parent.children ??= []).push(event);
  }
  return events;
}
const events = readEvents(data.events ?? {}, data.strings ?? []);
(data.phases?.event ?? []).forEach((index, at) => {
  events[index].phases = Object.fromEntries(PHASES.map(([name]) => [name, data.phases[name][at] / 1e3]));
});

const childrenOf = (event) => event.children ?? [];
const eventsByLink = new Map(), eventsByKey = new Map();
for (const event of events) {
  if (!workerByRank.has(event.worker)) {
    // Nothing else is known of it.
    workers.push(newWorker({ rank: event.worker, name: nameOf(event.worker) }));
    workerByRank.set(event.worker, workers.at(-1));
  }
  const worker = workerByRank.get(event.worker);
  (worker.rows[event.row] ??= { events: [], lanes: [] }).events.push(event);
  if (event.link) pushTo(eventsByLink, event.link, event);
  if (!eventsByKey.has(worker.name)) eventsByKey.set(worker.name, new Map());
  pushTo(eventsByKey.get(worker.name), event.key, event);
  bounds.start = Math.min(bounds.start, event.start);
  bounds.end = Math.max(bounds.end, event.end);
}
if (!(bounds.end > bounds.start)) bounds.end = bounds.start + 1;
const failures = events.filter(isBad).length;

/** Lays a row's events into lanes, one for each depth. Events of a lane do not overlap: both of its arrays of times are sorted. */
function layLanes(worker, row) {
  row.events.sort((a, b) => a.start - b.start || b.end - a.end);
  const open = [];
  for (const event of row.events) {
    while (open.length > 0 && open.at(-1).end <= event.start) open.pop();
    event.lane = row.lanes[open.length] ??= { events: [], depth: open.length, worker, row, y: 0 };
    event.slot = event.lane.events.push(event) - 1;
    open.push(event);
  }
  for (const lane of row.lanes) {
    const count = lane.events.length;
    lane.starts = Float64Array.from(lane.events, (event) => event.start);
    lane.ends = Float64Array.from(lane.events, (event) => event.end);
    // Sums over all events before one, so that a merged run of any length is judged at once.
    Object.assign(lane, { failed: new Uint32Array(count + 1), matched: new Uint32Array(count + 1), spent: new Float64Array(count + 1) });
    lane.events.forEach((event, slot) => {
      lane.failed[slot + 1] = lane.failed[slot] + (isBad(event) ? 1 : 0);
      lane.spent[slot + 1] = lane.spent[slot] + duration(event);
    });
  }
}
for (const worker of workers) {
  for (let number = 0; number < Math.max(worker.rows.length, worker.rowNames.length); number++) {
    const row = worker.rows[number] ??= { events: [], lanes: [] };
    row.name = worker.rowNames[number] ?? `row ${number + 1}`;
    row.isPinned = false;
    layLanes(worker, row);
  }
}
const lanes = workers.flatMap((worker) => worker.rows.flatMap((row) => row.lanes));

/** What can be looked at as a step: first the whole, if there is anything, and then what was done again and again, by time. */
const steps = [...(data.step ? [{ ...data.step, isWhole: true }] : []), ...[...data.steps ?? []].sort((a, b) => a.start - b.start)].map((step) => {
  let now = step.start;
  const critical = step.critical.event.map((number, at) => {
    const start = now / 1e3, event = events[number] ?? null;
    now += step.critical.took[at];
    return { event, start, end: now / 1e3, worker: event ? nameOf(event.worker) : step.worker, name: event?.key ?? step.name };
  });
  const usages = step.workers.map((usage) => inMicros(usage, ["busy", "waiting", "idle"]));
  return { ...inMicros(step, ["start", "duration"]), end: (step.start + step.duration) / 1e3, usages, critical };
});
{
  // The third of five of a name.
  const groups = new Map();
  for (const step of steps) if (!step.isWhole) pushTo(groups, step.name, step);
  for (const group of groups.values()) group.forEach((step, at) => { step.label = `${step.name} ${at + 1} of ${group.length}`; });
  for (const step of steps) if (step.isWhole) step.label = "whole recording";
}
/** The step that is looked at, the pieces of its critical path of which the event is known, and those events. */
let step = null, criticalPieces = [], criticalEvents = new Set();
function takeStep(number) {
  step = steps[number] ?? steps[0] ?? null;
  const known = (step?.critical ?? []).filter(({ event }) => event);
  criticalPieces = known.map(({ event, start, end }) => ({ event, start: Math.max(event.start, start), end: Math.min(event.end, end) })).filter(({ start, end }) => end > start);
  criticalEvents = new Set(criticalPieces.map((piece) => piece.event));
}
takeStep(0);

// ---------------------------------------------------------------- State of the timeline

const AXIS = 30, GUTTER = 168, HEADER = 26, LANE = 20, BOX = 17, PADDING = 5, REST = 52;
/** Events narrower than this many pixels are merged with their neighbours. */
const MERGE_BELOW = 1.5;
const SHORTEST_VIEW = 0.02;
const DIM = 0.2;

const canvas = byId("canvas"), overview = byId("overview"), scroller = byId("scroller");
const pen = canvas.getContext("2d");
const prefersCalm = matchMedia("(prefers-reduced-motion: reduce)");

const margin = (bounds.end - bounds.start) * 0.01;
const whole = { start: bounds.start - margin, end: bounds.end + margin };
/** What is seen, and where that is on its way to. */
let view = { ...whole }, goal = { ...whole };
let size = { width: 1000, height: 600, ratio: 1 };
let selected = null, hovered = null, drag = null;
/** Where the pointer is on the canvas, as a share of the plot's width. */
let pointerShare = 0.5;
/** Which events are highlighted: `{ label, test, average }`, or null for all. */
let highlight = null;
let showsCritical = false;
/** For each event whether it stands out; null when all do. */
let standsOut = null;
let theme = {};

function readTheme() {
  theme = coloursOf(["surface", "band", "line", "text", "muted", "accent", "critical"]);
  theme.kinds = Object.fromEntries([...KINDS, "failed"].map((kind) => {
    const { [kind]: fill, [`${kind}-edge`]: edge } = coloursOf([kind, `${kind}-edge`]);
    return [kind, { fill, edge }];
  }));
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const tilePen = tile.getContext("2d");
  Object.assign(tilePen, { strokeStyle: theme.kinds.failed.edge, globalAlpha: 0.45 });
  tilePen.stroke(new Path2D("M-7 7L1 -1M-1 7L7 -1M5 7L13 -1"));
  theme.hatch = pen.createPattern(tile, "repeat");
}

const styleOf = (event) => isBad(event) ? theme.kinds.failed : theme.kinds[event.kind] ?? theme.kinds.scope;
const markOf = (event) => isBad(event) ? `${{ "timed out": "!", cancelled: "–" }[event.status] ?? "✕"} ` : "";
/** What is called, without the modules that it is in: there is little room in the timeline, and more of them at the front. */
const shortOf = ({ name, kind }) => ["call", "execution", "wait"].includes(kind) && !name.includes("<") ? name.replace(/\b(?:[a-z_]\w*::)+/g, "") : name;
const labelOf = (event, name = event.name) => markOf(event) + name + (event.peer !== null ? ` ${event.kind === "call" ? "→" : "←"} ${nameOf(event.peer)}` : "");

/** So many lanes of a worker are shown, of each row no more than so many, and the rest as one crowd, until all are asked for. */
const MOST_LANES = 32, DEEPEST = 16;
/** More workers than this are collapsed at first. */
const MOST_OPEN = 12;
if (workers.length > MOST_OPEN) for (const worker of workers) worker.isCollapsed = true;

/** Which of the calls of a thread that overlap are in a row: the first, the second, and so on. */
const layerOf = (row) => Number(/ \((\d+)\)$/.exec(row.name)?.[1] ?? 1);
/** Decides which lanes of a worker have a place of their own: first of all those that show what its threads do one after the other. */
function chooseLanes(worker) {
  const depthOf = (row) => worker.showsAll || row.isPinned ? row.lanes.length : Math.min(row.lanes.length, DEEPEST);
  let room = MOST_LANES;
  const first = new Set([...worker.rows].sort((a, b) => layerOf(a) - layerOf(b)).filter((row) => {
    const had = room;
    room -= Math.max(depthOf(row), 1);
    return had > 0;
  }));
  worker.shown = worker.isCollapsed ? [] : worker.rows.filter((row) => worker.showsAll || row.isPinned || first.has(row));
  for (const row of worker.rows) for (const lane of row.lanes) lane.isPlaced = false;
  for (const row of worker.shown) row.depth = depthOf(row);
  const isShown = new Set(worker.shown);
  /** Of the lanes of each row that have no place, the outermost. */
  worker.rest = worker.isCollapsed ? [] : worker.rows.flatMap((row) => row.lanes[isShown.has(row) ? row.depth : 0] ?? []);
  worker.restCount = worker.rest.reduce((sum, lane) => sum + lane.row.lanes.length - lane.depth, 0);
}

/** The lanes that have a place, from top to bottom, and where that is. */
let placed = [], placedAt = new Float64Array(0);
/** What a worker's events leave out, in words. */
const lackOf = ({ isKnown, dropped }) => [...(isKnown ? [] : ["no events are known"]), ...(dropped > 0 ? [`${counted(dropped, "event")} dropped`] : [])];
/** Changes whenever places do. */
let layout = 0;
/** Gives every lane its place, and rebuilds the buttons beside them. */
function layOut() {
  const buttons = [];
  let y = AXIS;
  placed = [];
  for (const worker of workers) {
    const button = (name, top, attributes, onclick, ...text) => {
      const hadFocus = worker[name]?.matches(":focus");
      worker[name] = el("button", { ...attributes, style: { top: `${top}px` }, onclick }, ...text);
      if (hadFocus) queueMicrotask(() => worker[name].focus());
      buttons.push(worker[name]);
    };
    const toggle = () => { worker.isCollapsed = !worker.isCollapsed; layOut(); };
    worker.y = y;
    button("head", y, { class: "head", "aria-expanded": !worker.isCollapsed, title: [`${worker.name}, rank ${worker.rank}`, ...lackOf(worker)].join(", ") }, toggle, worker.name);
    y += HEADER;
    chooseLanes(worker);
    for (const row of worker.shown) {
      row.y = y;
      for (const lane of row.lanes.slice(0, row.depth)) {
        Object.assign(lane, { y: y + PADDING + lane.depth * LANE, isPlaced: true });
        placed.push(lane);
      }
      y += Math.max(row.depth, 1) * LANE + 2 * PADDING;
    }
    worker.shownAt = Float64Array.from(worker.shown, (row) => row.y);
    worker.restY = worker.rest.length > 0 ? y : null;
    if (worker.rest.length > 0 || worker.showsAll && !worker.isCollapsed) {
      const turn = () => { worker.showsAll = !worker.showsAll; for (const row of worker.rows) row.isPinned = false; layOut(); };
      const isMore = worker.rest.length > 0;
      button("more", y, { class: "more-rows", "data-testid": `rows-${worker.rank}` }, turn, isMore ? `+ ${counted(worker.restCount, "more row")}` : "− fewer rows");
      y += isMore ? REST : HEADER;
    }
    worker.bottom = y;
  }
  placedAt = Float64Array.from(placed, (lane) => lane.y);
  layout++;
  byId("worker-labels").replaceChildren(...buttons);
  byId("labels").style.height = `${y + 12}px`;
  const isAnyOpen = workers.some((worker) => !worker.isCollapsed);
  byId("fold").textContent = isAnyOpen ? "Collapse all" : "Expand all";
  byId("fold").disabled = workers.length === 0;
  redraw();
}
/** Collapses all workers, or expands them when all are. */
function fold() {
  const isAnyOpen = workers.some((worker) => !worker.isCollapsed);
  for (const worker of workers) worker.isCollapsed = isAnyOpen;
  layOut();
}

/** Writes the names of the rows that are in sight; others have none, so that thousands of rows take no time. */
let labelled = "";
function labelRows(rows) {
  const now = rows.length === 0 ? "" : `${layout} ${rows[0].y} ${rows.at(-1).y}`;
  if (now === labelled) return;
  labelled = now;
  byId("row-labels").replaceChildren(...rows.map((row) => el("div", { title: row.name, style: { top: `${row.y}px` } }, row.name)));
}

/** The sums of all values before each. */
function sumsOf(values) {
  const sums = new Float64Array(values.length + 1);
  values.forEach((value, at) => { sums[at + 1] = sums[at] + value; });
  return sums;
}
/** How much time events have taken, all in all, until a moment. */
function takenUntil({ starts, ends, startSums, endSums }, at) {
  const begun = lowerBound(starts, at), ended = lowerBound(ends, at);
  return begun * at - startSums[begun] - (ended * at - endSums[ended]);
}
/** When something goes on in some lanes: when events start and when they end, and how many there are at once at most. */
function crowdOf(lanes, test = null) {
  const all = lanes.flatMap((lane) => lane.events), some = test ? all.filter(test) : all;
  const starts = Float64Array.from(some, (event) => event.start).sort(), ends = Float64Array.from(some, (event) => event.end).sort();
  let most = 1;
  for (let at = 0, ended = 0; at < starts.length; at++) {
    while (ends[ended] <= starts[at]) ended++;
    most = Math.max(most, at + 1 - ended);
  }
  return { starts, ends, most, startSums: sumsOf(starts), endSums: sumsOf(ends) };
}
/** What goes on in all rows of a worker, or only in what has no place of its own: of all events, and of those that stand out. */
function crowdsOf(worker, isWhole) {
  const name = isWhole ? "wholeCrowd" : "restCrowd", state = isWhole ? 0 : layout, known = worker[name]?.state === state ? worker[name] : null;
  if (known?.standsOut === standsOut) return known;
  const lanes = isWhole ? worker.rows.flatMap((row) => row.lanes[0] ?? []) : worker.rest;
  worker[name] = { state, standsOut, all: known?.all ?? crowdOf(lanes), found: standsOut && crowdOf(lanes, (event) => standsOut[event.index] === 1) };
  return worker[name];
}

// ---------------------------------------------------------------- Painting

const plotWidth = () => Math.max(size.width - GUTTER, 1);
const toX = (at) => GUTTER + (at - view.start) / (view.end - view.start) * plotWidth();
const toTime = (x) => view.start + (x - GUTTER) / plotWidth() * (view.end - view.start);
/** The vertical middle of an event in the window. */
const middleOf = ({ lane }) => (lane.isPlaced ? lane.y + BOX / 2 : lane.worker.isCollapsed ? lane.worker.y + HEADER / 2 : lane.worker.restY + REST / 2) - scroller.scrollTop;

function block(pen, colour, x, y, width, height, alpha = 1) {
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 1;
}

/**
 * Paints what a lane has between two moments, and returns how many events that is. What is too narrow to be seen is
 * merged by pixel, without a look at each: the work is bounded by the width, not by the number of events.
 */
function paintLane(pen, lane, shown, left, width, y, height) {
  const { starts, ends } = lane;
  const perPixel = (shown.end - shown.start) / width;
  const x = (at) => left + (at - shown.start) / perPixel;
  const isWide = (at) => ends[at] - starts[at] >= MERGE_BELOW * perPixel;
  const first = lowerBound(ends, shown.start), stop = lowerBound(starts, shown.end);
  let run = null;
  const flush = () => { if (run) block(pen, run.colour, run.from, y, run.to - run.from, height, run.alpha); run = null; };
  for (let at = first; at < stop;) {
    if (isWide(at)) {
      flush();
      paintBox(pen, lane.events[at], Math.max(x(starts[at]), left - 8), Math.min(x(ends[at]), left + width + 8), y, height, left);
      at++;
      continue;
    }
    // All that begins within the pixel; pixels are counted from zero, so that they stay the same while panning.
    const pixel = Math.floor(starts[at] / perPixel);
    let end = lowerBound(starts, (pixel + 1) * perPixel, at + 1, stop);
    if (end - 1 > at && isWide(end - 1)) end--;
    const isDim = standsOut !== null && lane.matched[end] === lane.matched[at];
    const fails = lane.failed[end] > lane.failed[at];
    const cover = Math.min(Math.ceil((lane.spent[end] - lane.spent[at]) / perPixel * 4) / 4, 1);
    const alpha = (isDim ? DIM : 1) * (fails ? 1 : 0.4 + 0.35 * cover);
    const colour = fails ? theme.kinds.failed.edge : styleOf(lane.events[at]).edge;
    const from = Math.round(x(pixel * perPixel)), to = from + (fails ? 2 : 1);
    if (run && run.colour === colour && run.alpha === alpha && from <= run.to) run.to = to;
    else { flush(); run = { from, to, colour, alpha }; }
    at = end;
  }
  flush();
  return stop - first;
}

/** One event that is wide enough to be a box, with its name from where the box, or the plot, begins. */
function paintBox(pen, event, from, to, y, height, left) {
  const style = styleOf(event);
  const isDim = standsOut !== null && !standsOut[event.index];
  const width = Math.max(to - from - 0.5, 1);
  if (width < 6 || height < BOX) {
    block(pen, style.edge, from, y, width, height, isDim ? DIM : 0.75);
    return;
  }
  pen.globalAlpha = isDim ? DIM : 1;
  pen.beginPath();
  pen.roundRect(from + 0.5, y + 0.5, width - 1, height - 1, 3);
  for (const fill of isBad(event) ? [style.fill, theme.hatch] : [style.fill]) { pen.fillStyle = fill; pen.fill(); }
  Object.assign(pen, { lineWidth: 1, strokeStyle: style.edge });
  pen.setLineDash(event.kind === "wait" ? [3, 2] : []);
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  const textFrom = Math.max(from, left) + 5;
  const text = isDim ? "" : fitted(pen, labelOf(event, shortOf(event)), to - textFrom - 4);
  if (text === "") return;
  // Calm ground, so that the hatching does not disturb the text.
  if (isBad(event)) block(pen, style.fill, textFrom - 2, y + 2, Math.min(pen.measureText(text).width + 4, to - textFrom), height - 4);
  pen.fillStyle = theme.text;
  pen.fillText(text, textFrom, y + height / 2 + 0.5);
}

/** How many events go on in each pixel, on average. */
function crowdIn(crowd, shown, width) {
  const perPixel = (shown.end - shown.start) / width, counts = new Float64Array(Math.ceil(width));
  let before = takenUntil(crowd, shown.start);
  for (let pixel = 0; pixel < counts.length; pixel++) {
    const until = takenUntil(crowd, shown.start + (pixel + 1) * perPixel);
    counts[pixel] = Math.max((until - before) / perPixel, 0);
    before = until;
  }
  return counts;
}
/** How much goes on at once, as an area, or as a shade where there is no room for one; what does not stand out is paler. */
function paintCrowd(pen, { all, found }, shown, left, width, y, height) {
  if (all.starts.length === 0) return;
  const counts = crowdIn(all, shown, width), most = counts.reduce((most, count) => Math.max(most, count), 1e-9);
  pen.fillStyle = theme.accent;
  for (const [values, alpha] of [[counts, found ? 0.2 : 0.6], [found && crowdIn(found, shown, width), 0.9]]) {
    if (!values) continue;
    pen.beginPath();
    pen.moveTo(left, y + height);
    values.forEach((count, pixel) => {
      const share = count / most, isSome = count > 1e-9;
      if (height < 5) {
        pen.globalAlpha = alpha * Math.min(0.25 + share, 1);
        if (isSome) pen.fillRect(left + pixel, y, 1, height);
        return;
      }
      // However little it is, it is seen.
      const top = y + height - (isSome ? Math.max(share * height, 1) : 0);
      pen.lineTo(left + pixel, top);
      pen.lineTo(left + pixel + 1, top);
    });
    pen.lineTo(left + width, y + height);
    pen.globalAlpha = alpha;
    if (height >= 5) pen.fill();
  }
  pen.globalAlpha = 1;
}

/** As much of a text as there is room for. */
const textWidths = new Map();
function fitted(pen, text, room) {
  if (room < 12) return "";
  if (!textWidths.has(text)) {
    if (textWidths.size > 20000) textWidths.clear();
    textWidths.set(text, pen.measureText(text).width);
  }
  const width = textWidths.get(text);
  if (width <= room) return text;
  const letters = Math.floor(text.length * (room - 10) / width);
  return letters < 2 ? "" : `${text.slice(0, letters)}…`;
}

function draw() {
  const { width, height, ratio } = size;
  const scroll = scroller.scrollTop;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  Object.assign(pen, { font: theme.font, textBaseline: "middle" });
  block(pen, theme.surface, 0, 0, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, 0, plotWidth(), height);
  pen.clip();
  const axis = axisTicks();
  for (const { at } of axis.ticks) block(pen, theme.line, Math.round(toX(at)), AXIS, 1, height, 0.6);
  let painted = 0;
  const paint = (lane, y, high) => { if (y < height && y + high > AXIS) painted += paintLane(pen, lane, view, GUTTER, plotWidth(), y, high); };
  const crowd = (crowds, y, high) => { painted += crowds.all.starts.length; paintCrowd(pen, crowds, view, GUTTER, plotWidth(), y, high); };
  const inSight = [];
  for (const worker of workers) {
    const y = worker.y - scroll;
    if (y > height || worker.bottom - scroll < AXIS) continue;
    block(pen, theme.band, GUTTER, y, plotWidth(), HEADER);
    pen.fillStyle = theme.muted;
    if (!worker.isCollapsed || !worker.isKnown) pen.fillText(lackOf(worker).join(", "), GUTTER + 8, y + HEADER / 2);
    if (worker.isCollapsed) {
      crowd(crowdsOf(worker, true), y + 4, HEADER - 7);
      continue;
    }
    for (let at = Math.max(lowerBound(worker.shownAt, scroll + AXIS) - 1, 0); at < worker.shown.length && worker.shown[at].y - scroll < height; at++) {
      const row = worker.shown[at];
      inSight.push(row);
      block(pen, theme.line, GUTTER, row.y - scroll, plotWidth(), 1);
      const above = Math.max(Math.floor((scroll + AXIS - row.y) / LANE) - 1, 0), below = Math.ceil((scroll + height - row.y) / LANE);
      for (const lane of row.lanes.slice(above, Math.min(below, row.depth))) paint(lane, lane.y - scroll, BOX);
    }
    if (worker.restY !== null && worker.restY - scroll < height) {
      block(pen, theme.line, GUTTER, worker.restY - scroll, plotWidth(), 1);
      crowd(crowdsOf(worker, false), worker.restY - scroll + 6, REST - 10);
    }
  }
  labelRows(inSight);
  if (events.length === 0) {
    pen.fillStyle = theme.muted;
    pen.fillText("No events were recorded.", GUTTER + 24, Math.max(AXIS, ...workers.map((worker) => worker.bottom)) + 26);
  }
  if (showsCritical) paintCritical();
  if (hovered) outline(hovered, theme.muted, 1.5);
  if (selected) {
    outline(selected, theme.text, 2);
    arrowsOf(selected).forEach(paintArrow);
  }
  paintAxis(axis);
  pen.restore();
  paintOverview();
  const inView = ({ start, end }) => end >= view.start && start <= view.end;
  const critical = showsCritical ? new Set(criticalPieces.filter(inView).map(({ event }) => event)).size : 0;
  Object.assign(document.body.dataset, { events: painted, rows: inSight.length, critical, from: view.start, to: view.end });
}

/** The moments of the axis, and what stands at them. */
function axisTicks() {
  const least = (view.end - view.start) / plotWidth() * 100;
  const power = 10 ** Math.floor(Math.log10(least));
  const distance = power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
  const reach = Math.max(Math.abs(view.start), Math.abs(view.end));
  const [unit, name] = reach >= 1e6 ? [1e6, "s"] : reach >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = clamp(-Math.floor(Math.log10(distance / unit) + 1e-9), 0, 9);
  const ticks = [];
  for (let number = Math.ceil(view.start / distance); number * distance <= view.end; number++) {
    ticks.push({ at: number * distance, text: `${(number * distance / unit).toFixed(digits)} ${name}` });
  }
  return { ticks, distance };
}

function paintAxis({ ticks, distance }) {
  block(pen, theme.surface, GUTTER, 0, plotWidth(), AXIS);
  block(pen, theme.line, GUTTER, AXIS - 1, plotWidth(), 1);
  for (let minor = Math.ceil(view.start / distance * 5); minor * distance / 5 <= view.end; minor++) {
    block(pen, theme.line, Math.round(toX(minor * distance / 5)), AXIS - 5, 1, 4);
  }
  for (const { at, text } of ticks) {
    block(pen, theme.muted, Math.round(toX(at)), AXIS - 9, 1, 8);
    pen.fillText(text, Math.round(toX(at)) + 5, 13);
  }
}

function outline(event, colour, thickness) {
  if (!event.lane.isPlaced) return;
  const from = Math.max(toX(event.start), GUTTER - 8), to = Math.min(toX(event.end), size.width + 8);
  Object.assign(pen, { strokeStyle: colour, lineWidth: thickness });
  pen.beginPath();
  pen.roundRect(from - 0.5, event.lane.y - scroller.scrollTop - 0.5, Math.max(to - from, 3) + 0.5, BOX + 1, 3.5);
  pen.stroke();
}

/** The critical path: a bar under each piece, and lines from piece to piece. */
function paintCritical() {
  const lines = new Path2D();
  const seen = criticalPieces.filter(({ start, end }) => end >= view.start && start <= view.end);
  // When there are too many, lines would hide all else.
  const hasLines = seen.length < plotWidth() / 5;
  let last = null;
  for (const { event, start, end } of seen) {
    const from = toX(start), to = Math.max(toX(end), from + 1), y = middleOf(event) + (event.lane.isPlaced ? BOX / 2 : 8);
    // What falls into the same pixel of the same lane is already there.
    if (!(last?.y === y && Math.floor(to) === Math.floor(last.to))) block(pen, theme.critical, from, y - 2, to - from, 4);
    if (hasLines && last && last.y !== y) { lines.moveTo(from, last.y); lines.lineTo(from, y); }
    last = { y, to };
  }
  Object.assign(pen, { strokeStyle: theme.critical, lineWidth: 1.5 });
  pen.stroke(lines);
}

/** The arrows of an event: from a call to its execution and back, and along its links. */
function arrowsOf(event) {
  const arrows = [];
  const call = event.kind === "execution" && event.parent?.kind === "call" ? event.parent : event;
  const executions = childrenOf(call).filter((child) => call.kind === "call" && child.kind === "execution");
  for (const execution of executions) {
    const sent = call.start + Math.min(call.phases?.encode ?? 0, duration(call));
    arrows.push({ from: call, fromTime: sent, to: execution, toTime: execution.start, colour: theme.kinds.call.edge, dash: [] });
    arrows.push({ from: execution, fromTime: execution.end, to: call, toTime: call.end, colour: theme.kinds.execution.edge, dash: [5, 4] });
  }
  const linked = eventsByLink.get(event.link) ?? [];
  linked.slice(1).forEach((to, at) => {
    arrows.push({ from: linked[at], fromTime: Math.min(linked[at].end, to.start), to, toTime: to.start, colour: theme.kinds.autograd.edge, dash: [] });
  });
  return arrows;
}

function paintArrow({ from, fromTime, to, toTime, colour, dash }) {
  const [x1, y1, x2, y2] = [toX(fromTime), middleOf(from), toX(toTime), middleOf(to)];
  const bend = clamp(Math.abs(x2 - x1) / 2, 16, 160);
  const lift = y1 === y2 ? -26 : 0;
  const curve = new Path2D();
  curve.moveTo(x1, y1);
  curve.bezierCurveTo(x1 + bend, y1 + lift, x2 - bend, y2 + lift, x2, y2);
  Object.assign(pen, { strokeStyle: colour, fillStyle: colour, lineWidth: 2 });
  pen.setLineDash(dash);
  pen.stroke(curve);
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(x1, y1, 3, 0, 7);
  pen.fill();
  pen.save();
  pen.translate(x2, y2);
  pen.rotate(Math.atan2(-lift, bend));
  pen.fill(new Path2D("M2 0L-8 -5V5z"));
  pen.restore();
}

/** The whole profile in small, with a window of what is seen. The former is painted anew only when it looks different. */
let overviewImage = null;
function paintOverview() {
  const { ratio } = size, width = overview.clientWidth || 1000, height = 38;
  if (!overviewImage) {
    overviewImage = Object.assign(document.createElement("canvas"), { width: width * ratio, height: height * ratio });
    Object.assign(overview, { width: width * ratio, height: height * ratio });
    const brush = overviewImage.getContext("2d");
    brush.scale(ratio, ratio);
    const rows = lanes.filter((lane) => lane.depth === 0);
    const high = Math.min((height - 10) / Math.max(rows.length, 1), 8);
    if (high >= 1) rows.forEach((lane, number) => paintLane(brush, lane, whole, 0, width, 5 + number * high, Math.max(high > 2.5 ? high - 1 : high, 0.5)));
    else {
      const each = (height - 8) / workers.length;
      workers.forEach((worker, number) => paintCrowd(brush, crowdsOf(worker, true), whole, 0, width, 4 + number * each, each > 2 ? each - 1 : each));
    }
  }
  const small = overview.getContext("2d");
  small.setTransform(1, 0, 0, 1, 0, 0);
  block(small, theme.surface, 0, 0, overview.width, overview.height);
  small.drawImage(overviewImage, 0, 0);
  small.scale(ratio, ratio);
  const [from, to] = [view.start, view.end].map((at) => (at - whole.start) / (whole.end - whole.start) * width);
  block(small, theme.surface, 0, 0, from, height, 0.7);
  block(small, theme.surface, to, 0, width - to, height, 0.7);
  Object.assign(small, { strokeStyle: theme.accent, lineWidth: 2 });
  if (to - from < width - 1) small.strokeRect(from + 1, 1, Math.max(to - from - 2, 1), height - 2);
}

const redraw = () => later("draw", draw);

function measure() {
  size = { width: scroller.clientWidth || size.width, height: scroller.clientHeight || size.height, ratio: window.devicePixelRatio || 1 };
  canvas.style.height = `${size.height}px`;
  Object.assign(canvas, { width: Math.round(size.width * size.ratio), height: Math.round(size.height * size.ratio) });
  overviewImage = null;
}

// ---------------------------------------------------------------- Moving

/** Shows a part of the profile, at once or on a short way there. */
function moveTo(start, end, isAtOnce = prefersCalm.matches) {
  const span = clamp(end - start, SHORTEST_VIEW, whole.end - whole.start);
  const from = clamp((start + end - span) / 2, whole.start, whole.end - span);
  const wasMoving = goal.start !== view.start || goal.end !== view.end;
  goal = { start: from, end: from + span };
  if (isAtOnce) { view = { ...goal }; redraw(); } else if (!wasMoving) requestAnimationFrame(approach);
}

function approach() {
  const near = (goal.end - goal.start) / 2000;
  view = { start: view.start + (goal.start - view.start) * 0.35, end: view.end + (goal.end - view.end) * 0.35 };
  const isThere = Math.abs(view.start - goal.start) < near && Math.abs(view.end - goal.end) < near;
  if (isThere) view = { ...goal }; else requestAnimationFrame(approach);
  redraw();
}

function zoom(factor, around = 0.5, isAtOnce = prefersCalm.matches) {
  const span = goal.end - goal.start;
  const wanted = clamp(span * factor, SHORTEST_VIEW, whole.end - whole.start);
  const start = goal.start + (span - wanted) * around;
  moveTo(start, start + wanted, isAtOnce);
}

const pan = (share, isAtOnce) => { const by = (goal.end - goal.start) * share; moveTo(goal.start + by, goal.end + by, isAtOnce); };
const showAll = () => moveTo(whole.start, whole.end);
function zoomTo(event, isAtOnce) {
  const room = Math.max(duration(event) * 0.6, SHORTEST_VIEW);
  moveTo(event.start - room, event.end + room, isAtOnce);
}

/** Brings an event into view, and no further than it takes. */
function reveal(event, isAtOnce) {
  if (!event.lane.isPlaced) {
    event.lane.worker.isCollapsed = false;
    event.lane.row.isPinned = true;
    layOut();
  }
  const width = duration(event) / (goal.end - goal.start) * plotWidth();
  if (event.end < goal.start || event.start > goal.end || width < 24) zoomTo(event, isAtOnce);
  const top = event.lane.y - AXIS - 40, bottom = event.lane.y + LANE + 40 - size.height;
  if (scroller.scrollTop > top || scroller.scrollTop < bottom) scroller.scrollTop = scroller.scrollTop > top ? top : bottom;
}

// ---------------------------------------------------------------- Selecting and highlighting

function select(event, reveals = false, isAtOnce = undefined) {
  const panel = byId("details");
  const hadFocus = panel.contains(document.activeElement);
  selected = event;
  panel.scrollTop = 0;
  panel.replaceChildren(...(event ? eventDetails(event) : profileDetails()));
  if (hadFocus) panel.focus();
  byId("announce").textContent = event ? `${event.name}, ${event.kind} on ${nameOf(event.worker)}, ${time(duration(event))}, ${event.status}` : "";
  if (event && reveals) { openTab("timeline"); reveal(event, isAtOnce); }
  writeFragment();
  redraw();
}

/** Finds out which events stand out after a search, a highlight, or the critical path. */
function refilter() {
  const words = byId("search").value.trim().toLowerCase();
  const matches = (event) => {
    event.haystack ??= `${event.name}\n${event.key}\n${event.kind}\n${isBad(event) ? event.status : ""}`.toLowerCase();
    return event.haystack.includes(words);
  };
  const asks = words !== "" || highlight !== null;
  let found = 0;
  standsOut = asks || showsCritical ? new Uint8Array(events.length) : null;
  for (const lane of standsOut ? lanes : []) {
    lane.events.forEach((event, slot) => {
      const isFound = (words === "" || matches(event)) && (highlight === null || highlight.test(event));
      const stands = isFound && (!showsCritical || criticalEvents.has(event)) ? 1 : 0;
      found += isFound ? 1 : 0;
      standsOut[event.index] = stands;
      lane.matched[slot + 1] = lane.matched[slot] + stands;
    });
  }
  byId("found").textContent = !asks ? "" : found === 0 ? "nothing found" : counted(found, "event");
  byId("previous").disabled = byId("next").disabled = !asks || found === 0;
  byId("chip").hidden = highlight === null;
  byId("chip-label").textContent = byId("chip-label").title = highlight?.label ?? "";
  overviewImage = null;
  redraw();
}

function setHighlight(to) {
  highlight = to;
  refilter();
}
function showHighlight(to) {
  setHighlight(to);
  openTab("timeline");
  writeFragment();
}
const alikeAnywhere = (name) => ({ label: name, test: (event) => plainName(event.key) === name });
const alike = (key, worker) => ({ label: `${key} on ${worker}`, test: (event) => event.key === key && nameOf(event.worker) === worker });

/** Selects the next event that stands out, or the one before. */
function selectMatch(direction) {
  let at = selected ? selected.index : direction > 0 ? -1 : 0;
  for (let tried = 0; standsOut && tried < events.length; tried++) {
    at = (at + direction + events.length) % events.length;
    if (standsOut[at]) { select(events[at], true); return; }
  }
}

// ---------------------------------------------------------------- The side panel

const swatch = (kind, looks = "") => el("span", { class: `swatch ${kind} ${looks}`, style: { "--fill": `var(--${kind})`, "--edge": `var(--${kind}-edge)` } });

function eventLink(event) {
  const link = el("button", { class: "link", onclick: () => select(event, true) }, labelOf(event));
  return el("li", {}, el("span", {}, swatch(isBad(event) ? "failed" : event.kind), link), el("span", { class: "quiet number" }, time(duration(event))));
}

function linkList(heading, list) {
  if (list.length === 0) return [];
  const into = el("ul", { class: "plain" }), more = el("div");
  paged(list, 50, into, more, eventLink);
  return [el("h3", {}, list.length > 1 ? `${heading} (${grouped(list.length)})` : heading), into, more];
}

const factList = (facts) => el("dl", { class: "facts-list" },
  facts.filter(([, value]) => (value ?? "") !== "").flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

function phaseBar(phases) {
  const sum = PHASES.reduce((all, [name]) => all + phases[name], 0);
  const share = (name) => sum > 0 ? phases[name] / sum : 0;
  const parts = PHASES.map(([name, kind]) => el("span", { title: name, style: { width: `${100 * share(name)}%`, background: `var(--${kind}-edge)` } }));
  const rows = PHASES.map(([name, kind]) => el("li", {}, el("span", {}, swatch(kind, "full"), name),
    el("span", { class: "number" }, `${time(phases[name])} `, el("span", { class: "quiet" }, `· ${percent(share(name))}`))));
  return [el("h3", {}, "Where its time went"), el("div", { class: "phases", "aria-hidden": true }, parts), el("ul", { class: "plain" }, rows)];
}

function eventDetails(event) {
  const worker = nameOf(event.worker);
  const linked = (eventsByLink.get(event.link) ?? []).filter((other) => other !== event);
  return [
    el("h2", {}, event.name),
    el("div", { class: "bar" },
      el("button", { class: "button", onclick: () => zoomTo(event) }, "Zoom to it"),
      el("button", { class: "button", onclick: () => setHighlight(alike(event.key, worker)) }, "Highlight alike"),
      el("button", { class: "button", "aria-label": "Clear the selection", onclick: () => select(null) }, "✕")),
    el("h3", {}, "What is known"),
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
      ["Key", event.key === event.name ? null : event.key],
    ]),
    ...(event.phases ? phaseBar(event.phases) : []),
    ...(event.parent ? linkList("Part of", [event.parent]) : event.isOrphan ? [el("h3", {}, "Part of"), "something that was not recorded"] : []),
    ...linkList("Linked, forward and backward", linked),
    ...linkList("Children", childrenOf(event)),
  ];
}

/** What the panel shows when nothing is selected: the colours and the keys. */
const KEYS = [
  [["w", "s"], "zoom in and out, or the wheel"], [["a", "d"], "go left and right, or drag"], [["0"], "show everything"],
  [["f"], "zoom to the selected event"], [["c"], "critical path"], [["x"], "collapse or expand all"], [["/"], "search; Enter for the next"],
  [["Arrows"], "from event to event"], [["Shift"], "with the wheel: scroll"], [["Esc"], "select nothing"],
];
function profileDetails() {
  const counts = new Map(KINDS.map((kind) => [kind, 0]));
  for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const row = (kind, label, count, test) => el("li", {},
    el("span", {}, swatch(kind), el("button", { class: "link", onclick: () => setHighlight({ label, test }) }, label)),
    el("span", { class: "quiet number" }, grouped(count)));
  return [
    el("h3", {}, "Kinds of events"),
    el("ul", { class: "plain" },
      [...counts].map(([kind, count]) => row(kind, kind, count, (event) => event.kind === kind)),
      row("failed", "✕ failed, ! timed out, – cancelled", failures, isBad)),
    el("h3", {}, "Keys"),
    factList(KEYS.map(([keys, what]) => [el("span", {}, keys.flatMap((key) => [el("kbd", {}, key), " "])), what])),
    el("h3", {}, "Select"),
    el("p", { class: "quiet" }, "Click on an event to see all that is known of it, twice to zoom to it. A call has an arrow to where it was executed, and a dashed one for the answer."),
  ];
}

// ---------------------------------------------------------------- Pointer and keys

/** The event at a place of the canvas; narrow ones can be missed by a little. */
function eventAt(x, y) {
  const height = y + scroller.scrollTop, lane = placed[lowerBound(placedAt, height + 1e-6) - 1];
  if (!lane || x < GUTTER || y < AXIS || height >= lane.y + LANE) return null;
  const at = toTime(x), slack = 3 * (view.end - view.start) / plotWidth();
  const distance = (event) => Math.max(event.start - at, at - event.end, 0);
  const first = lowerBound(lane.ends, at - slack);
  const near = lane.events.slice(first, first + 4).filter((event) => distance(event) <= slack);
  return near.sort((a, b) => distance(a) - distance(b))[0] ?? null;
}

function pointAt(event, x, y) {
  tooltip.hidden = event === null;
  if (!event) return;
  const facts = [time(duration(event)), `${event.kind} on ${nameOf(event.worker)}`, ...(event.bytes > 0 ? [bytes(event.bytes)] : [])];
  showTooltip(x, y, el("b", {}, labelOf(event)), facts.join(" · "), ...(isBad(event) ? [el("div", { class: "bad" }, event.status)] : []));
}

/** What goes on at a place where rows are drawn as one, in words. */
function crowdAt(x, y) {
  const height = y + scroller.scrollTop, worker = x < GUTTER || y < AXIS ? undefined : workers.find((worker) => height >= worker.y && height < worker.bottom);
  const isWhole = worker?.isCollapsed ?? false;
  if (!worker || !isWhole && (worker.restY === null || height < worker.restY)) return null;
  const { all: { starts, ends, most } } = crowdsOf(worker, isWhole), at = toTime(x), pixel = (view.end - view.start) / plotWidth();
  const count = lowerBound(starts, at + pixel / 2) - lowerBound(ends, at - pixel / 2);
  return { worker, said: `${counted(count, "event")} at once here, ${grouped(most)} at most, in ${counted(isWhole ? worker.rows.length : worker.restCount, "row")}` };
}

canvas.addEventListener("pointerdown", ({ button, pointerId, offsetX, offsetY }) => {
  if (button !== 0 || offsetX < GUTTER) return;
  canvas.setPointerCapture(pointerId);
  drag = { x: offsetX, y: offsetY, start: view.start, end: view.end, scroll: scroller.scrollTop, hasMoved: false };
});

canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y, clientX, clientY }) => {
  pointerShare = clamp((x - GUTTER) / plotWidth(), 0, 1);
  if (drag) drag.hasMoved ||= Math.hypot(x - drag.x, y - drag.y) > 4;
  if (drag?.hasMoved) {
    const by = (x - drag.x) / plotWidth() * (drag.end - drag.start);
    moveTo(drag.start - by, drag.end - by, true);
    scroller.scrollTop = drag.scroll - (y - drag.y);
  }
  hovered = drag?.hasMoved ? null : eventAt(x, y);
  canvas.style.cursor = drag?.hasMoved ? "grabbing" : hovered ? "pointer" : "grab";
  pointAt(hovered, clientX, clientY);
  const crowd = hovered || drag?.hasMoved ? null : crowdAt(x, y);
  if (crowd) showTooltip(clientX, clientY, el("b", {}, crowd.worker.name), crowd.said);
  redraw();
});

canvas.addEventListener("pointerup", ({ offsetX, offsetY }) => {
  if (drag && !drag.hasMoved) select(eventAt(offsetX, offsetY));
  drag = null;
});
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointerleave", () => { pointerShare = 0.5; hovered = null; tooltip.hidden = true; redraw(); });
canvas.addEventListener("dblclick", () => { if (selected) zoomTo(selected); });

canvas.addEventListener("wheel", (wheel) => {
  wheel.preventDefault();
  const unit = [1, 18, 400][wheel.deltaMode];
  const dx = wheel.deltaX * unit, dy = wheel.deltaY * unit;
  if (wheel.shiftKey) scroller.scrollTop += dx + dy;
  else if (Math.abs(dx) > Math.abs(dy)) pan(dx / plotWidth(), true);
  else zoom(Math.exp(clamp(dy, -300, 300) * (wheel.ctrlKey ? 0.01 : 0.002)), clamp((wheel.offsetX - GUTTER) / plotWidth(), 0, 1), true);
}, { passive: false });

scroller.addEventListener("scroll", redraw);

function moveByOverview({ buttons, pointerId, offsetX }) {
  if (buttons !== 1) return;
  overview.setPointerCapture(pointerId);
  const middle = whole.start + offsetX / overview.clientWidth * (whole.end - whole.start);
  const half = (view.end - view.start) / 2;
  moveTo(middle - half, middle + half, true);
}
overview.addEventListener("pointerdown", moveByOverview);
overview.addEventListener("pointermove", moveByOverview);

/** From the selected event to a neighbour in its lane, or to the lane above or below it. */
function selectBeside(key) {
  const { lane, slot, start } = selected ?? {};
  const within = (depth) => { const other = lane.row.lanes[depth]; return other?.events[lowerBound(other.ends, start + duration(selected) * 1e-6)]; };
  const next = !selected ? events.find((event) => event.end >= view.start)
    : key === "ArrowLeft" ? lane.events[slot - 1] : key === "ArrowRight" ? lane.events[slot + 1]
    : within(lane.depth + (key === "ArrowUp" ? -1 : 1));
  if (next) select(next, true);
}

/** Marks the critical path of the step that is looked at, where there is one, or not. */
function markCritical(marks) {
  showsCritical = marks && criticalPieces.length > 0;
  byId("show-critical").setAttribute("aria-pressed", showsCritical);
  byId("show-critical").disabled = criticalPieces.length === 0;
  refilter();
}
const toggleCritical = () => markCritical(!showsCritical);

const actions = {
  w: () => zoom(0.7, pointerShare), s: () => zoom(1 / 0.7, pointerShare), a: () => pan(-0.18), d: () => pan(0.18), 0: showAll,
  f: () => selected && zoomTo(selected), c: toggleCritical, x: fold, "/": () => byId("search").focus(), Escape: () => select(null),
};
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey || byId("panel-timeline").hidden || press.target.matches("input, select, [role=tab]")) return;
  const isArrow = press.target === canvas && press.key.startsWith("Arrow");
  const action = isArrow ? () => selectBeside(press.key) : actions[press.key.length === 1 ? press.key.toLowerCase() : press.key];
  if (!action) return;
  press.preventDefault();
  action();
});

byId("search").addEventListener("input", () => later("filter", refilter));
byId("search").addEventListener("keydown", ({ key, shiftKey }) => { if (key === "Enter") selectMatch(shiftKey ? -1 : 1); });
const onClick = {
  previous: () => selectMatch(-1), next: () => selectMatch(1), "chip-clear": () => setHighlight(null), "show-critical": toggleCritical,
  fold, "zoom-in": () => zoom(0.6), "zoom-out": () => zoom(1 / 0.6), everything: showAll,
};
for (const [id, action] of Object.entries(onClick)) byId(id).addEventListener("click", action);

// ---------------------------------------------------------------- The table of averages

const someBytes = (count) => count > 0 ? bytes(count) : "";
const COLUMNS = [
  { name: "name", isText: true }, { name: "worker", isText: true },
  { name: "calls", show: grouped }, { name: "failed", show: (count) => count > 0 ? `✕ ${grouped(count)}` : "", looks: "bad" },
  { name: "self", show: time, hasShare: true }, { name: "total", show: time, hasShare: true },
  { name: "mean", show: time }, { name: "p50", show: time }, { name: "p99", show: time },
  { name: "bytes", show: someBytes, hint: "of requests and answers" },
  ...(averages.some((average) => average.tensor_bytes > 0) ? [{ name: "tensor_bytes", title: "tensors", show: someBytes, hint: "bytes of tensors that came of it, or that it carried" }] : []),
];
let order = { column: "total", isAscending: false };

/** Whether each worker has rows of its own: what 64 workers do alike is easier to read together. */
let isByWorker = workers.length <= 8;
/** A name without who called whom. */
const plainNames = new Map();
function plainName(name) {
  if (!plainNames.has(name)) plainNames.set(name, name.replace(/\([^()]* -> [^()]*\)/g, ""));
  return plainNames.get(name);
}
/** The averages of all workers together, by what was done. */
let merged = null;
function mergedAverages() {
  if (merged) return merged;
  const groups = new Map();
  for (const average of averages) pushTo(groups, plainName(average.name), average);
  merged = [...groups].map(([name, parts]) => {
    const sum = (column) => parts.reduce((all, part) => all + (part[column] ?? 0), 0);
    const times = Float64Array.from(parts.flatMap((part) => eventsByKey.get(part.worker)?.get(part.name) ?? []), duration).sort();
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

/** What was done, and for which calls of other workers. */
function splitName(name) {
  const parts = name.split("#remote_op: ");
  return { what: parts.pop(), calls: parts };
}

function averageRow(average, largest) {
  const { what, calls } = splitName(average.name);
  const choose = () => showHighlight({ ...(average.isMerged ? alikeAnywhere(average.name) : alike(average.name, average.worker)), average });
  const behalf = calls.length === 0 ? null : el("span", { class: "behalf" }, calls.reverse().map((call) => `for ${call}`).join(", "));
  const numbers = COLUMNS.slice(2).map(({ name, show, hasShare, looks }) => el("td", {
    class: `number ${looks ?? ""} ${hasShare ? "share" : ""}`,
    style: hasShare ? { "--part": average[name] / (largest[name] || 1) } : {},
  }, show(average[name])));
  return el("tr", { class: highlight?.average === average ? "chosen" : null, onclick: choose },
    el("td", {}, el("button", { class: "link", title: average.name }, what), behalf), el("td", {}, average.worker), numbers);
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
  const all = isByWorker ? averages : mergedAverages();
  const kept = all.filter((average) => groupKey(average.worker, average.name).toLowerCase().includes(words));
  kept.sort((one, other) => {
    const [a, b] = (order.isAscending ? [one, other] : [other, one]).map((average) => average[order.column]);
    return typeof a === "string" ? a.localeCompare(b) : a - b;
  });
  const largest = all.reduce((most, { self, total }) => ({ self: Math.max(most.self, self), total: Math.max(most.total, total) }), { self: 0, total: 0 });
  paged(kept, 300, body, byId("averages-more"), (average) => averageRow(average, largest));
  if (kept.length === 0) body.append(el("tr", {}, el("td", { colspan: COLUMNS.length, class: "quiet" }, all.length === 0 ? "There are no events." : "Nothing matches the filter.")));
  byId("shown").textContent = words === "" ? counted(all.length, "row") : `${grouped(kept.length)} of ${counted(all.length, "row")}`;
}
byId("filter").addEventListener("input", fillAverages);

// ---------------------------------------------------------------- Traffic

const callsBetween = ({ from, to }) => ({ label: `calls ${nameOf(from)} → ${nameOf(to)}`, test: (event) => event.kind === "call" && event.worker === from && event.peer === to });
const ranks = [...new Set([...workerByRank.keys(), ...traffic.flatMap(({ from, to }) => [from, to])])].sort((a, b) => a - b);
const addUp = (flows) => flows.reduce((all, flow) => ({ bytes: all.bytes + flow.bytes, calls: all.calls + flow.calls }), { bytes: 0, calls: 0 });
const allTraffic = addUp(traffic);

function fillTraffic() {
  const isMany = ranks.length > MOST_IN_TABLE;
  byId("no-traffic").hidden = traffic.length > 0;
  byId("traffic-card").hidden = traffic.length === 0;
  byId("traffic-bar").hidden = !isMany || traffic.length === 0;
  byId("traffic-note").textContent = traffic.length === 0 ? "" : isMany ? "The deeper the colour, the more went from the one of the row to the one of the column. Bars: all of a row, and all of a column."
    : "Bytes of requests and answers, and the number of calls. The deeper the colour, the larger the share of all bytes.";
  byId("traffic-columns").classList.toggle("map", isMany);
  byId("traffic").hidden = isMany;
  byId("traffic-map").hidden = byId("flows-section").hidden = !isMany;
  if (traffic.length > 0) (isMany ? fillMap : fillMatrix)();
}

/** Who called whom, in numbers. */
function fillMatrix() {
  const flows = new Map(traffic.map((flow) => [`${flow.from} ${flow.to}`, flow])), largest = traffic.reduce((most, flow) => Math.max(most, flow.bytes), 1);
  const cell = (looks, flow) => {
    if (!flow || flow.calls === 0 && flow.bytes === 0) return el("td", { class: `none ${looks}` }, "–");
    const title = `${percent(flow.bytes / (allTraffic.bytes || 1))} of all bytes`;
    return el("td", { class: looks, title, style: { "--part": flow.bytes / largest } }, el("b", {}, bytes(flow.bytes)), el("small", {}, counted(flow.calls, "call")));
  };
  byId("traffic").append(
    el("caption", { class: "unseen" }, "Bytes and calls from each worker, one per row, to each worker, one per column"),
    el("thead", {},
      el("tr", {}, el("th", { rowspan: 2, scope: "col" }, "from"), el("th", { colspan: ranks.length, scope: "colgroup" }, "to"), el("th", { rowspan: 2, scope: "col" }, "all")),
      el("tr", {}, ranks.map((rank) => el("th", { scope: "col" }, nameOf(rank))))),
    el("tbody", {}, ranks.map((rank) => el("tr", {}, el("th", { scope: "row" }, nameOf(rank)),
      ranks.map((other) => cell("", flows.get(`${rank} ${other}`))), cell("sum", addUp(traffic.filter(({ from }) => from === rank)))))),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "all"), ranks.map((rank) => cell("sum", addUp(traffic.filter(({ to }) => to === rank)))), cell("sum", allTraffic))));
}

/** The same of many, as a picture, and the largest in numbers. */
function fillMap() {
  const said = (flow) => flow ? `${bytes(flow.bytes)}, ${counted(flow.calls, "call")}, ${percent(flow.bytes / (allTraffic.bytes || 1))} of all bytes` : "nothing";
  const map = heatMap(byId("traffic-map"), { describe: said, choose: (flow) => showHighlight(callsBetween(flow)) });
  const place = new Map(ranks.map((rank, at) => [rank, at]));
  const show = (what) => {
    const largest = traffic.reduce((most, flow) => Math.max(most, flow[what]), 1), some = traffic.filter((flow) => flow[what] > 0);
    // By the root, so that what is small can be seen beside what is large.
    map.show(ranks.map(nameOf), some.map((flow) => ({ ...flow, row: place.get(flow.from), column: place.get(flow.to), weight: flow[what], part: Math.sqrt(flow[what] / largest) })));
    byId("traffic-map").setAttribute("aria-label", `Who called whom: ${counted(some.length, "pair")} of ${ranks.length} workers. The arrow keys go from pair to pair, Enter highlights its calls.`);
    const ranked = [...some].sort((a, b) => b[what] - a[what]);
    paged(ranked, 18, byId("flows").tBodies[0], byId("flows-more"), (flow) => el("tr", {},
      el("td", {}, el("button", { class: "link", onclick: () => showHighlight(callsBetween(flow)) }, `${nameOf(flow.from)} → ${nameOf(flow.to)}`)),
      el("td", { class: "number" }, grouped(flow.calls)), el("td", { class: "number" }, bytes(flow.bytes)),
      el("td", { class: "number share", style: { "--part": flow[what] / largest } }, percent(flow[what] / (allTraffic[what] || 1)))));
  };
  choice(byId("traffic-kind"), [["bytes", "bytes"], ["calls", "calls"]], "bytes", show);
  show("bytes");
}

// ---------------------------------------------------------------- The critical path

const section = (heading, ...children) => el("section", {}, el("h2", {}, heading), ...children);
/** A table whose columns from the third on are numbers. */
const tableOf = (columns, body) => el("div", { class: "card limited", tabindex: 0 }, el("table", {},
  el("thead", {}, el("tr", {}, columns.map((name, at) => el("th", { scope: "col", class: at > 1 ? "number" : null }, name)))), body));

/** Looks at another step, by its number. */
function chooseStep(number) {
  takeStep(number);
  markCritical(showsCritical);
  fillCritical();
  writeFragment();
}
/** Shows the step that is looked at in the timeline, with its critical path. */
function showStep() {
  openTab("timeline");
  moveTo(step.start - step.duration * 0.02, step.end + step.duration * 0.02);
  markCritical(true);
  writeFragment();
}
/** What chooses a step; nothing where the whole is all there is. */
function stepBar() {
  const at = steps.indexOf(step);
  const go = (by) => () => { chooseStep(at + by); byId(by < 0 ? "step-before" : "step-after").focus(); };
  const select = el("select", { class: "field", id: "step", "data-testid": "step", onchange() { chooseStep(Number(select.value)); byId("step").focus(); } },
    steps.map((step, number) => el("option", { value: number }, `${step.label}, ${time(step.duration)}`)));
  select.value = at;
  const button = (id, label, by) => el("button", { class: "button", id, "aria-label": label, onclick: go(by), ...(steps[at + by] ? {} : { disabled: "" }) }, by < 0 ? "‹" : "›");
  const choice = steps.length < 2 ? [] : [el("label", { for: "step" }, "Step"), select, el("div", { class: "group" }, button("step-before", "Previous step", -1), button("step-after", "Next step", 1))];
  return el("div", { class: "bar toolbar" }, choice, el("button", { class: "button", id: "step-timeline", "data-testid": "step-timeline", onclick: showStep }, "Show in the timeline"));
}

function fillCritical() {
  const page = byId("critical-inner");
  page.replaceChildren();
  if (!step) {
    page.append(section("Critical path", el("p", { class: "card padded quiet" }, "There is no step to look at: nothing was recorded.")));
    return;
  }
  const { critical, usages } = step, list = el("ol", { class: "path", "data-testid": "critical" });
  const full = step.duration > 0 ? step.duration : 1;
  const longest = usages.reduce((most, usage) => !most || usage.waiting > most.waiting ? usage : most, null);
  const stat = (name, value, note) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  page.append(stepBar(), el("dl", { class: "stats", "data-testid": "step-facts" },
    stat("Step", step.name, `${step.isWhole ? "" : `${step.label.slice(step.name.length + 1)}, `}${counted(critical.length, "piece")} on its critical path`),
    stat("Duration", time(step.duration), "from its start to its end"),
    stat("Bubble", percent(step.bubble ?? NaN), "of the workers' time was not worked"),
    longest?.waiting > 0 ? stat("Waits most", longest.worker, `${time(longest.waiting)}, ${percent(longest.waiting / full)} of the step`) : stat("Waits most", "nobody", "no worker waited for another")));

  const SHARES = { busy: "something ran", waiting: "for other workers", idle: "nothing ran" };
  const usageRow = (usage) => el("tr", {}, el("th", { scope: "row" }, usage.worker),
    el("td", {}, el("div", { class: "usage", "aria-hidden": true }, Object.keys(SHARES).map((name) => el("span", { class: name, style: { width: `${100 * usage[name] / full}%` } })))),
    Object.keys(SHARES).map((name) => el("td", { class: "number", title: time(usage[name]) }, percent(usage[name] / full))));
  // Of those of which nothing is known it cannot be said that they had nothing to do.
  const unknownRow = ({ name }) => el("tr", { class: "quiet" }, el("th", { scope: "row" }, name), el("td", { colspan: 4 }, "no events of it are known"));
  page.append(section("How the workers spent it",
    el("div", { class: "legend" }, Object.entries(SHARES).map(([name, what]) => el("span", {}, el("span", { class: `swatch ${name}` }), `${name}: ${what}`))),
    tableOf(["worker", "share of the step", ...Object.keys(SHARES)], el("tbody", { "data-testid": "usage" }, usages.map(usageRow), workers.filter(({ isKnown }) => !isKnown).map(unknownRow)))));
  if (critical.length > 0) page.append(section("The path from worker to worker", stairs(critical)));

  const sums = new Map();
  for (const { worker, name, start, end } of critical) {
    const key = groupKey(worker, name);
    if (!sums.has(key)) sums.set(key, { worker, name, spent: 0, pieces: 0 });
    sums.get(key).spent += end - start;
    sums.get(key).pieces++;
  }
  const button = (name, onclick) => el("button", { class: "link", title: name, onclick }, splitName(name).what);
  const body = el("tbody"), bodyMore = el("div"), listMore = el("div");
  const ranked = [...sums.values()].sort((a, b) => b.spent - a.spent);
  paged(ranked, 12, body, bodyMore, ({ name, worker, pieces, spent }) => el("tr", {},
    el("td", {}, button(name, () => showHighlight(alike(name, worker)))), el("td", {}, worker),
    el("td", { class: "number" }, grouped(pieces)), el("td", { class: "number" }, time(spent)),
    el("td", { class: "number share", style: { "--part": spent / (ranked[0].spent || 1) } }, percent(spent / full))));
  paged(critical, 100, list, listMore, ({ event, name, worker, start, end }, at) => el("li", {},
    el("span", { class: "quiet number" }, `${at + 1}.`), el("span", {}, worker),
    event ? button(name, () => select(event, true)) : el("span", { title: name }, splitName(name).what), el("span", { class: "number" }, time(end - start))));
  page.append(el("div", { class: "columns" },
    section("What it consists of", tableOf(["name", "worker", "pieces", "time", "share"], body), bodyMore),
    section("Piece by piece", el("div", { class: "card" }, list), listMore)));
}

/** A small picture of which worker the path was on at what time. The list says the same in words. */
function stairs(critical) {
  const onPath = new Set(critical.map((segment) => segment.worker));
  const names = [...new Set([...workers.map((worker) => worker.name), ...onPath])].filter((name) => onPath.has(name));
  const from = critical[0].start, span = Math.max(critical.at(-1).end - from, 1e-9);
  const height = names.length * 22, heights = new Map(names.map((name, at) => [name, at * 22 + 5]));
  const changes = critical.filter(({ worker }, at) => at > 0 && worker !== critical[at - 1].worker).length;
  const picture = (changes > 400 ? shades : boxes)(critical, heights, from, span);
  return el("div", { class: "card padded stairs limited", "aria-hidden": true }, el("ul", { class: "plain" }, names.map((name) => el("li", {}, name))),
    svg("svg", { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none", height }, picture));
}

/** How long a path was on each worker in turn, and lines from one to the next. */
function boxes(critical, heights, from, span) {
  const x = (at) => Number(((at - from) / span * 1000).toFixed(2));
  let pieces = "", lines = "";
  for (let at = 0; at < critical.length;) {
    // All that follows on the same worker, as one.
    const { worker } = critical[at], y = heights.get(worker), left = x(critical[at].start);
    if (at > 0) lines += `M${left} ${heights.get(critical[at - 1].worker) + 5.5}V${y + 5.5}`;
    while (critical[at + 1]?.worker === worker) at++;
    pieces += `M${left} ${y}H${Math.max(x(critical[at].end), left + 0.6)}v11H${left}z`;
    at++;
  }
  return [svg("path", { d: lines, stroke: "var(--critical)", "stroke-opacity": 0.5, "vector-effect": "non-scaling-stroke" }), svg("path", { d: pieces, fill: "var(--critical)" })];
}

/** The same where it goes to and fro more often than could be seen: the deeper the colour, the larger the share of the time that the path was on the worker. */
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

// ---------------------------------------------------------------- Tabs and the address

const tabs = [...document.querySelectorAll("[role=tab]")];

function openTab(name) {
  const left = document.activeElement?.closest("[role=tabpanel]");
  for (const tab of tabs) {
    const isOpen = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", isOpen);
    tab.tabIndex = isOpen ? 0 : -1;
    byId(`panel-${tab.dataset.tab}`).hidden = !isOpen;
  }
  tooltip.hidden = true;
  if (name === "timeline") { measure(); redraw(); }
  // What had the focus cannot be seen any more.
  if (left?.hidden) byId(name === "timeline" ? "canvas" : `panel-${name}`).focus();
  if (name === "table") fillAverages();
}

tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => { openTab(tab.dataset.tab); writeFragment(); });
  tab.addEventListener("keydown", (press) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[press.key];
    if (to === undefined) return;
    press.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
});

/** Keeps the tab, the step and the selected event in the address, so that it can be passed on. */
function writeFragment() {
  const open = tabs.find((tab) => tab.getAttribute("aria-selected") === "true")?.dataset.tab ?? "timeline";
  const fragment = new URLSearchParams({ ...(open !== "timeline" && { tab: open }), ...(steps.indexOf(step) > 0 && { step: steps.indexOf(step) }), ...(selected && { select: selected.index }) });
  if (`#${fragment}` !== (location.hash || "#")) history.replaceState(null, "", `#${fragment}`);
}

function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const tab = tabs.some(({ dataset }) => dataset.tab === fragment.get("tab")) ? fragment.get("tab") : "timeline";
  const event = events[fragment.get("select")] ?? null;
  if (steps[Number(fragment.get("step"))] !== (step ?? undefined)) chooseStep(Number(fragment.get("step")));
  openTab(tab);
  select(event, event !== null, true);
  openTab(tab);
  writeFragment();
}
addEventListener("hashchange", readFragment);

// ---------------------------------------------------------------- Start

document.title = `${data.title ?? "trace"} – Telegrad`;
byId("title").textContent = data.title ?? "Telegrad trace";
byId("facts").textContent = [time((data.duration ?? 0) / 1e3), counted(workers.length, "worker"), counted(events.length, "event"), ...(failures > 0 ? [`${grouped(failures)} not ok`] : [])].join(" · ");
/** Says what the recording leaves out: whoever reads it must not take it for all there was. */
function showLack(list, headline) {
  if (list.length === 0) return;
  byId("missing").hidden = false;
  byId("missing").append(el("div", {}, el("strong", {}, `⚠ ${headline}`), el("ul", {}, list.map(([worker, why]) => el("li", {}, el("b", {}, worker), why)))));
}
const unknown = workers.filter(({ isKnown, name }) => !isKnown && !missing.some(([worker]) => worker === name));
const dropping = workers.filter(({ dropped }) => dropped > 0), dropped = dropping.reduce((sum, worker) => sum + worker.dropped, 0);
showLack(missing.map(([worker, why]) => [worker, `: ${why}`]), `Not all events of ${counted(missing.length, "worker")} are there`);
showLack(unknown.map(({ name }) => [name, ""]), `No events are known of ${counted(unknown.length, "worker")}`);
showLack(dropping.map((worker) => [worker.name, `: ${grouped(worker.dropped)}`]), `${counted(dropped, "event")} ${dropped === 1 ? "was" : "were"} dropped: there were too many to keep`);
readTheme();
measure();
layOut();
markCritical(false);
fillAverages();
fillTraffic();
fillCritical();
readFragment();
draw();
new ResizeObserver(() => { if (scroller.clientWidth > 0) { measure(); draw(); } }).observe(scroller);
onThemeChange(() => { readTheme(); overviewImage = null; redraw(); });
document.body.dataset.ready = "true";
