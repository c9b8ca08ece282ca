const { equal, deepEqual } = require("node:assert/strict");

const strings = ["", "call", "execution", "work", "ok", "failed"];
const same = (value) => [value, value, value];
const data = {
  title: "t", duration: 5000, strings,
  workers: [{ rank: 0, name: "a", rows: ["main"], dropped: 0, known: true }, { rank: 2, name: "c", rows: [], dropped: 0, known: false }],
  events: {
    // Starts are differences to the previous event.
    start: [1000, 500, 1000], took: [3000, 500, 100], worker: [0, 1, 0], row: [0, 0, 0], kind: [1, 2, 1], name: same(3), key: same(3),
    status: [4, 4, 5], shapes: same(0), parent: [-1, 0, -2], peer: [1, 0, -1], link: [0, 0, 0], bytes: [8, 0, 0], tensor_bytes: same(0),
  },
  phases: { event: [0], encode: [1], wire: [499], queue: [0], execute: [500], reply: [2000] },
  averages: [{ name: "work", worker: "a", calls: 2, failed: 1, self: 3000, total: 3100, mean: 1550, p50: 100, p99: 3000, bytes: 8, tensor_bytes: 0 }],
};
const profile = readProfile(data), [call, execution, failed] = profile.events;

deepEqual(profile.events.map(({ start, end }) => [start, end]), [[1, 4], [1.5, 2], [2.5, 2.6]]);
equal(execution.parent, call);
deepEqual(childrenOf(call), [execution]);
deepEqual([call.isOrphan, failed.isOrphan, failed.parent, failed.peer], [false, true, null, null]);
deepEqual(call.phases, { encode: 0.001, wire: 0.499, queue: 0, execute: 0.5, reply: 2 });
// Phases and the rest add up to the duration.
deepEqual(partsOf(call).map(({ name, took }) => [name, took]), [["encode", 0.001], ["wire", 0.499], ["queue", 0], ["execute", 0.5], ["reply", 2]]);
const { name, took } = partsOf({ ...call, end: call.end + 1 }).at(-1);
deepEqual([name, took], ["rest", 1]);
equal(profile.failures, 1);
deepEqual(profile.averages.map(({ self, p99 }) => [self, p99]), [[3, 3]]);
deepEqual(profile.bounds, { start: 0, end: 5 });

// A worker known only from an event has a row and a default name.
deepEqual(profile.workers.map(({ rank, name, isKnown }) => [rank, name, isKnown]), [[0, "a", true], [2, "c", false], [1, "rank 1", true]]);
deepEqual(profile.workers.map(({ rows }) => rows.map((row) => [row.name, row.events.length])), [[["main", 2]], [], [["row 1", 1]]]);
equal(profile.nameOf(7), "rank 7");

// Labels of steps have their number among all, and the worker if several have steps of the name.
const step = (name, worker, number, count, start) => ({ event: -1, name, worker, number, count, start, duration: 1000, bubble: 0, workers: [], critical: { event: [0, -1], took: [400, 600] } });
const stepped = readProfile({ ...data, step: step("run", "a", 1, 1, 0), steps: [step("s", "b", 500, 500, 9000), step("s", "a", 1, 500, 1000), step("t", "a", 2, 2, 2000)], all_steps: 1002 });
deepEqual(stepped.steps.map(({ label }) => label), ["whole recording", "s 1 of 500 on a", "t 2 of 2", "s 500 of 500 on b"]);
equal(stepped.leftOut, 999);
// Pieces follow each other from the start on.
deepEqual(stepped.steps[1].critical.map(({ start, end, name, worker }) => [start, end, name, worker]), [[1, 1.4, "work", "a"], [1.4, 2, "nothing recorded", ""]]);

// An empty recording.
const none = readProfile({});
deepEqual([none.events, none.workers, none.steps, none.averages, none.traffic], [[], [], [], [], []]);
equal(none.bounds.end > none.bounds.start, true);
