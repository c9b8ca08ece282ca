// The recording, as the rest of the page needs it: made of the columns in which it comes. Nothing here touches the page.

const KINDS = ["scope", "operator", "layer", "autograd", "optimizer", "wait", "codec", "call", "execution"];
/** The phases of a call, each with the kind whose colour it has, and when it is over. */
const PHASES = [
  ["encode", "optimizer", "until its request is handed over to the link"], ["wire", "call", "until it is at the callee"], ["queue", "scope", "until its function begins"],
  ["execute", "execution", "until that returns"], ["reply", "autograd", "until the answer is at the caller"],
];

const isBad = (event) => event.status !== "ok";
const duration = (event) => event.end - event.start;
const childrenOf = (event) => event.children ?? [];

/** All times are in microseconds from here on; those of the data, in nanoseconds. */
const inMicros = (thing, fields) => ({ ...thing, ...Object.fromEntries(fields.map((field) => [field, thing[field] / 1e3])) });

/** Everything that is known of a recording; of parts that it does not have, nothing. */
function readProfile(data) {
  const workers = (data.workers ?? []).map(newWorker), workerByRank = new Map(workers.map((worker) => [worker.rank, worker]));
  const nameOf = (rank) => workerByRank.get(rank)?.name ?? unnamed(rank);
  const events = readEvents(data.events ?? {}, data.strings ?? []), eventsByLink = new Map(), eventsByKey = new Map();
  readPhases(events, data.phases ?? {});
  const bounds = { start: 0, end: (data.duration ?? 0) / 1e3 };
  for (const event of events) {
    if (!workerByRank.has(event.worker)) {
      // Nothing else is known of it.
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
    /** How many steps there are that are not on this page. */
    leftOut: Math.max((data.all_steps ?? 0) - (data.steps ?? []).length, 0),
  };
}

const newWorker = ({ rank, name, rows = [], dropped = 0, known = true }) => ({ rank, name, dropped, isKnown: known, rowNames: rows, rows: [], isCollapsed: false, showsAll: false });
const newRow = () => ({ events: [], lanes: [], isPinned: false });

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

/** Tells calls where their time went. */
function readPhases(events, { event: numbers = [], ...columns }) {
  numbers.forEach((number, at) => {
    events[number].phases = Object.fromEntries(PHASES.map(([name]) => [name, columns[name][at] / 1e3]));
  });
}

/** Where the time of a call went: its phases, and what is left of it, if anything is. */
function partsOf(call) {
  const parts = PHASES.map(([name, kind, until]) => ({ name, kind, until, took: call.phases[name] }));
  const rest = parts.reduce((left, { took }) => left - took, duration(call));
  // Less than a nanosecond is none.
  return rest < 1e-3 ? parts : [...parts, { name: "rest", kind: "wait", until: "after the answer was there", took: rest }];
}

/** What can be looked at as a step: first the whole, if there is anything, and then what was done again and again, by time. */
function readSteps({ step: whole, steps = [] }, events, nameOf) {
  const all = [...(whole ? [{ ...whole, isWhole: true }] : []), ...[...steps].sort((a, b) => a.start - b.start)].map((step) => {
    let now = step.start;
    const critical = step.critical.event.map((number, at) => {
      const start = now / 1e3, event = events[number] ?? null;
      now += step.critical.took[at];
      // Where it is within no event, nobody is known to have done anything.
      return { event, start, end: now / 1e3, worker: event ? nameOf(event.worker) : "", name: event?.key ?? "nothing recorded" };
    });
    const usages = step.workers.map((usage) => inMicros(usage, ["busy", "waiting", "idle"]));
    return { ...inMicros(step, ["start", "duration"]), end: (step.start + step.duration) / 1e3, usages, critical };
  });
  const workersOf = new Map();
  for (const { name, worker } of steps) workersOf.set(name, (workersOf.get(name) ?? new Set()).add(worker));
  // The third of five of a name, and on whom, where several have some.
  for (const step of all) {
    const which = `${grouped(step.number)} of ${grouped(step.count)}${workersOf.get(step.name)?.size > 1 ? ` on ${step.worker}` : ""}`;
    Object.assign(step, step.isWhole ? { which: "", label: "whole recording" } : { which, label: `${step.name} ${which}` });
  }
  return all;
}
