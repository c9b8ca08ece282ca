// Lays events into lanes, and chooses the lanes to show.

/**
 * Joins consecutive rows of the same name, since short-lived threads would fill the page. Rows and their events are sorted by start.
 */
function joinRows(rows) {
  const joined = [], byName = new Map();
  for (const row of rows) {
    const start = row.events[0]?.start ?? -Infinity, end = row.events.reduce((last, event) => Math.max(last, event.end), -Infinity);
    const free = (byName.get(row.name) ?? []).find((other) => other.end <= start);
    if (!free) {
      joined.push(row);
      pushTo(byName, row.name, Object.assign(row, { end, threads: 1 }));
      continue;
    }
    for (const event of row.events) free.events.push(event);
    Object.assign(free, { end, threads: free.threads + 1 });
  }
  return joined;
}

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
    // Prefix sums, so that a merged run of any length takes constant time.
    Object.assign(lane, { failed: new Uint32Array(count + 1), matched: new Uint32Array(count + 1), spent: new Float64Array(count + 1) });
    lane.events.forEach((event, slot) => {
      lane.failed[slot + 1] = lane.failed[slot] + (isBad(event) ? 1 : 0);
      lane.spent[slot + 1] = lane.spent[slot] + duration(event);
    });
  }
}

/** Maximum number of lanes per worker and per row; the rest is shown as density until the user expands it. */
const MOST_LANES = 32, DEEPEST = 16;
/** The number of a row among those for overlapping calls of a thread. */
const layerOf = (row) => Number(/ \((\d+)\)$/.exec(row.name)?.[1] ?? 1);
/** Chooses the lanes of a worker to show: rows of threads first, then rows of overlapping calls. */
function chooseLanes(worker) {
  const depthOf = (row) => worker.showsAll || row.isPinned ? row.lanes.length : Math.min(row.lanes.length, DEEPEST);
  let space = MOST_LANES;
  const first = new Set([...worker.rows].sort((a, b) => layerOf(a) - layerOf(b)).filter((row) => {
    const had = space;
    space -= Math.max(depthOf(row), 1);
    return had > 0;
  }));
  worker.shown = worker.isCollapsed ? [] : worker.rows.filter((row) => worker.showsAll || row.isPinned || first.has(row));
  for (const row of worker.rows) for (const lane of row.lanes) lane.isPlaced = false;
  for (const row of worker.shown) row.depth = depthOf(row);
  const isShown = new Set(worker.shown);
  /** The outermost hidden lane of each row. */
  worker.rest = worker.isCollapsed ? [] : worker.rows.flatMap((row) => row.lanes[isShown.has(row) ? row.depth : 0] ?? []);
  worker.restCount = worker.rest.reduce((sum, lane) => sum + lane.row.lanes.length - lane.depth, 0);
}
