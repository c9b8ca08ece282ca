const { equal, deepEqual } = require("node:assert/strict");

const event = (start, end, status = "ok") => ({ start, end, status });
const rowOf = (name, ...events) => { const row = { ...newRow(), name, events }; layLanes(null, row); return row; };

// By depth: an event that starts before another one has ended lies below it.
const row = rowOf("main", event(0, 10), event(2, 5), event(3, 4), event(5, 9, "failed"), event(12, 14));
deepEqual(row.lanes.map((lane) => lane.events.map(({ start }) => start)), [[0, 12], [2, 5], [3]]);
for (const { starts, ends } of row.lanes) for (let at = 1; at < starts.length; at++) equal(starts[at] >= ends[at - 1], true);
// Prefix sums.
deepEqual([...row.lanes[1].failed], [0, 0, 1]);
deepEqual([...row.lanes[1].spent], [0, 3, 7]);

// Consecutive threads of one name share a row; overlapping ones do not.
const threads = [["main", 0, 100], ["thread", 1, 5], ["thread", 3, 9], ["thread", 5, 8], ["thread", 9, 12], ["other", 20, 30]];
const joined = joinRows(threads.map(([name, start, end]) => ({ ...newRow(), name, events: [event(start, end)] })));
deepEqual(joined.map(({ name, events }) => [name, ...events.map(({ start }) => start)]), [["main", 0], ["thread", 1, 5, 9], ["thread", 3], ["other", 20]]);
deepEqual(joined.map(({ threads }) => threads), [1, 3, 1, 1]);

equal(layerOf({ name: "main" }), 1);
equal(layerOf({ name: "main (12)" }), 12);

// Rows of threads come before rows of overlapping calls, each limited in depth.
const deep = rowOf("deep", ...Array.from({ length: 20 }, (_, at) => event(at, 100 - at)));
const wide = Array.from({ length: 40 }, (_, at) => rowOf(`main (${at + 2})`, event(0, 1)));
const worker = { isCollapsed: false, showsAll: false, rows: [...wide, deep] };
chooseLanes(worker);
equal(worker.shown.includes(deep), true);
equal(deep.depth, DEEPEST);
equal(worker.shown.reduce((sum, row) => sum + row.depth, 0), MOST_LANES);
equal(worker.restCount, 20 + 40 - MOST_LANES);

worker.showsAll = true;
chooseLanes(worker);
deepEqual([worker.shown.length, deep.depth, worker.rest.length], [41, 20, 0]);

worker.isCollapsed = true;
chooseLanes(worker);
deepEqual([worker.shown, worker.rest], [[], []]);
