const { equal, deepEqual } = require("node:assert/strict");

const lanes = [{ events: [{ start: 0, end: 4, index: 0 }, { start: 4, end: 8, index: 1 }] }, { events: [{ start: 2, end: 6, index: 2 }] }];
const density = densityOf(lanes);
equal(density.most, 2, "adjacent events do not overlap");
equal(takenUntil(density, 8), 12);
equal(takenUntil(density, 3), 4);
deepEqual([...densityIn(density, { start: 0, end: 8 }, 4)], [1, 2, 2, 1]);
// Independent of the visible range.
deepEqual([...densityIn(density, { start: 2, end: 6 }, 2)], [2, 2]);
deepEqual([...densityIn(density, { start: 8, end: 10 }, 2)], [0, 0]);

const some = densityOf(lanes, ({ index }) => index === 2);
deepEqual([...densityIn(some, { start: 0, end: 8 }, 4)], [0, 1, 1, 0]);
// Failures include nested events in lanes below.
const row = { ...newRow(), name: "main", events: [[0, 9, "ok"], [1, 2, "failed"], [4, 8, "ok"], [5, 6, "timed out"]].map(([start, end, status]) => ({ start, end, status })) };
layLanes(null, row);
deepEqual(row.lanes.map((lane) => [...failuresOf([lane])]), [[1, 5], [1, 5], [5]]);

deepEqual([...densityIn(densityOf([]), { start: 0, end: 1 }, 2)], [0, 0]);
