// Which events have a place beside each other, and which of these have a place of their own.

/**
 * Rows of one name, of which one is over before the next begins, as one: threads that come and go would fill the page. They are given
 * by when they begin, and so are their events.
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
    // Sums over all events before one, so that a merged run of any length is judged at once.
    Object.assign(lane, { failed: new Uint32Array(count + 1), matched: new Uint32Array(count + 1), spent: new Float64Array(count + 1) });
    lane.events.forEach((event, slot) => {
      lane.failed[slot + 1] = lane.failed[slot] + (isBad(event) ? 1 : 0);
      lane.spent[slot + 1] = lane.spent[slot] + duration(event);
    });
  }
}

/** So many lanes of a worker are shown, of each row no more than so many, and the rest as one crowd, until all are asked for. */
const MOST_LANES = 32, DEEPEST = 16;
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
