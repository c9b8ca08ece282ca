// Reads the columns of the recording into the objects that the page uses. Independent of the page.

const KINDS = ["scope", "operator", "layer", "autograd", "optimizer", "wait", "codec", "call", "execution"];
/** The phases of a call, each with the kind that gives its colour, and its end. */
const PHASES = [
  ["encode", "optimizer", "until the link has the request"], ["wire", "call", "until the request is at the callee"], ["queue", "scope", "until the function begins"],
  ["execute", "execution", "until the function returns"], ["reply", "autograd", "until the reply is at the caller"],
];

const isBad = (event) => event.status !== "ok";
const duration = (event) => event.end - event.start;
const childrenOf = (event) => event.children ?? [];

/** Times in the data are in nanoseconds; all others are in microseconds. */
const inMicros = (thing, fields) => ({ ...thing, ...Object.fromEntries(fields.map((field) => [field, thing[field] / 1e3])) });

/** Reads a recording; missing parts become empty. */
function readProfile(data) {
  const workers = (data.workers ?? []).map(newWorker), workerByRank = new Map(workers.map((worker) => [worker.rank, worker]));
  const nameOf = (rank) => workerByRank.get(rank)?.name ?? unnamed(rank);
  const events = readEvents(data.events ?? {}, data.strings ?? []), eventsByLink = new Map(), eventsByKey = new Map();
  readPhases(events, data.phases ?? {});
  const bounds = { start: 0, end: (data.duration ?? 0) / 1e3 };
  for (const event of events) {
    if (!workerByRank.has(event.worker)) {
      // No other data of this worker exists.
      workers.push(newWorker({ rank: event.worker, name: nameOf(event.worker) }));
      workerByRank.set(event.worker, workers.at(-1));
    }
    const worker = workerByRank.get(event.worker);
    (worker.rows[event.row] ??= newRow()).events.push(event);
    if (event.link) pushTo(eventsByLink, event.link, event);
    if (!eventsByKey.has(worker.name)) eventsByKey.set(worker.name, new Map());
    pushTo(eventsByKey.get(worker.name), event.key, event);
    bounds.start = Math.min(bounds.start, event.start);
    bounds.end = Math.max(bounds.end, event.end);
  }
  if (!(bounds.end > bounds.start)) bounds.end = bounds.start + 1;
  for (const worker of workers) {
    for (let number = 0; number < Math.max(worker.rows.length, worker.rowNames.length); number++) {
      const row = worker.rows[number] ??= newRow();
      row.name = worker.rowNames[number] ?? `row ${number + 1}`;
    }
    worker.rows = joinRows(worker.rows);
    for (const row of worker.rows) layLanes(worker, row);
  }
  return {
    title: data.title ?? "Telegrad trace", duration: (data.duration ?? 0) / 1e3, bounds, workers, workerByRank, nameOf, events, eventsByLink, eventsByKey,
    lanes: workers.flatMap((worker) => worker.rows.flatMap((row) => row.lanes)), failures: events.filter(isBad).length,
    averages: (data.averages ?? []).map((average) => inMicros(average, ["self", "total", "mean", "p50", "p99"])),
    traffic: data.traffic ?? [], missing: data.missing ?? [], doubts: data.clock_warnings ?? [], steps: readSteps(data, events, nameOf),
    /** Number of steps that are not on this page. */
    leftOut: Math.max((data.all_steps ?? 0) - (data.steps ?? []).length, 0),
  };
}

const newWorker = ({ rank, name, rows = [], dropped = 0, known = true }) => ({ rank, name, dropped, isKnown: known, rowNames: rows, rows: [], isCollapsed: false, showsAll: false });
const newRow = () => ({ events: [], lanes: [], isPinned: false });

/** Reads the events, sorted by start. */
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
      /** Whether its parent was not recorded. */
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

/** Adds the phases to the calls. */
function readPhases(events, { event: numbers = [], ...columns }) {
  numbers.forEach((number, at) => {
    events[number].phases = Object.fromEntries(PHASES.map(([name]) => [name, columns[name][at] / 1e3]));
  });
}

/** The phases of a call, and the rest of its duration, if any. */
function partsOf(call) {
  const parts = PHASES.map(([name, kind, until]) => ({ name, kind, until, took: call.phases[name] }));
  const rest = parts.reduce((left, { took }) => left - took, duration(call));
  // Ignores rounding below a nanosecond.
  return rest < 1e-3 ? parts : [...parts, { name: "rest", kind: "wait", until: "after the reply has arrived", took: rest }];
}

/** The steps to select from: the whole recording, if it has events, then repeated spans by start. */
function readSteps({ step: whole, steps = [] }, events, nameOf) {
  const all = [...(whole ? [{ ...whole, isWhole: true }] : []), ...[...steps].sort((a, b) => a.start - b.start)].map((step) => {
    let now = step.start;
    const critical = step.critical.event.map((number, at) => {
      const start = now / 1e3, event = events[number] ?? null;
      now += step.critical.took[at];
      // A piece without an event has no known work.
      return { event, start, end: now / 1e3, worker: event ? nameOf(event.worker) : "", name: event?.key ?? "nothing recorded" };
    });
    const usages = step.workers.map((usage) => inMicros(usage, ["busy", "waiting", "idle"]));
    return { ...inMicros(step, ["start", "duration"]), end: (step.start + step.duration) / 1e3, usages, critical };
  });
  const workersOf = new Map();
  for (const { name, worker } of steps) workersOf.set(name, (workersOf.get(name) ?? new Set()).add(worker));
  // For example the third of five of a name, with the worker if several have some.
  for (const step of all) {
    const which = `${grouped(step.number)} of ${grouped(step.count)}${workersOf.get(step.name)?.size > 1 ? ` on ${step.worker}` : ""}`;
    Object.assign(step, step.isWhole ? { which: "", label: "whole recording" } : { which, label: `${step.name} ${which}` });
  }
  return all;
}
