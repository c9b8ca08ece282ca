// The state and layout of the timeline.

const AXIS = 30, HEADER = 26, LANE = 20, BOX = 17, PADDING = 5, REST = 52;
/** Events narrower than this many pixels are merged with their neighbours. */
const MERGE_BELOW = 1.5;
const SHORTEST_VIEW = 0.02;
const DIM = 0.2;

const canvas = byId("canvas"), overview = byId("overview"), scroller = byId("scroller");
const pen = canvas.getContext("2d");
const prefersCalm = matchMedia("(prefers-reduced-motion: reduce)");

const margin = (profile.bounds.end - profile.bounds.start) * 0.01;
const whole = { start: profile.bounds.start - margin, end: profile.bounds.end + margin };
/** The visible range, and the target of its animation. */
let view = { ...whole }, goal = { ...whole };
let size = { width: 1000, height: 600, ratio: 1 };
/** The width of the row names. */
let gutter = 168;
let selected = null, hovered = null, drag = null;
/** The position of the pointer, as a share of the plot's width. */
let pointerShare = 0.5;
/** The highlight: `{ label, test, average }`, or null. */
let highlight = null;
let showsCritical = false;
/** For each event whether it is emphasised; null if all are. */
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
/** The name of a function without its modules, for the narrow boxes of the timeline. */
const shortOf = ({ name, kind }) => ["call", "execution", "wait"].includes(kind) && !name.includes("<") ? name.replace(/\b(?:[a-z_]\w*::)+/g, "") : name;
const labelOf = (event, name = event.name) => markOf(event) + name + (event.peer !== null ? ` ${event.kind === "call" ? "→" : "←"} ${nameOf(event.peer)}` : "");

/** With more workers, all are collapsed initially. */
const MOST_OPEN = 12;
if (workers.length > MOST_OPEN) for (const worker of workers) worker.isCollapsed = true;

/** The visible lanes, from top to bottom, with their positions. */
let placed = [], placedAt = new Float64Array(0);
/** Describes the missing events of a worker. */
const lackOf = ({ isKnown, dropped }) => [...(isKnown ? [] : ["events unknown"]), ...(dropped > 0 ? [`${counted(dropped, "event")} dropped`] : [])];
/** The version of the layout. */
let layout = 0;
/** Lays out all lanes, and rebuilds their buttons. */
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
/** Collapses all workers, or expands all if all are collapsed. */
function fold() {
  const isAnyOpen = workers.some((worker) => !worker.isCollapsed);
  for (const worker of workers) worker.isCollapsed = isAnyOpen;
  layOut();
}

/** Writes the names of the visible rows only, so that thousands of rows are cheap. */
let labelled = "";
function labelRows(rows) {
  const now = rows.length === 0 ? "" : `${layout} ${rows[0].y} ${rows.at(-1).y}`;
  if (now === labelled) return;
  labelled = now;
  byId("row-labels").replaceChildren(...rows.map((row) => el("div", { title: row.threads > 1 ? `${row.name}: ${row.threads} consecutive threads of this name` : row.name, style: { top: `${row.y}px` } }, row.name)));
}

/** The density in all rows of a worker, or in the rows without lanes: of all events, and of emphasised ones. */
function densitiesOf(worker, isWhole) {
  const name = isWhole ? "wholeDensity" : "restDensity", state = isWhole ? 0 : layout, known = worker[name]?.state === state ? worker[name] : null;
  if (known?.standsOut === standsOut) return known;
  const lanes = isWhole ? worker.rows.flatMap((row) => row.lanes[0] ?? []) : worker.rest;
  worker[name] = { state, standsOut, all: known?.all ?? densityOf(lanes), failures: known?.failures ?? failuresOf(lanes), found: standsOut && densityOf(lanes, (event) => standsOut[event.index] === 1) };
  return worker[name];
}

const plotWidth = () => Math.max(size.width - gutter, 1);
const toX = (at) => gutter + (at - view.start) / (view.end - view.start) * plotWidth();
const toTime = (x) => view.start + (x - gutter) / plotWidth() * (view.end - view.start);
/** The vertical centre of an event in the window. */
const middleOf = ({ lane }) => (lane.isPlaced ? lane.y + BOX / 2 : lane.worker.isCollapsed ? lane.worker.y + HEADER / 2 : lane.worker.restY + REST / 2) - scroller.scrollTop;
