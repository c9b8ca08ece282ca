// ---------------------------------------------------------------- Small helpers

const listOf = (value) => Array.isArray(value) ? value : [];

/** Most of what is shown stays the same from one answer to the next: only what is new is written. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
/** Gives `parent` one child for each item; children are kept, and changed by `update`. */
function fill(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, at) => update(parent.children[at], item, at));
}
/** Text whose names stand in backticks, as nodes. */
const withCode = (text) => String(text).split("`").map((part, at) => at % 2 === 1 ? el("code", {}, part) : part);

const perSecond = (value) => scaled(value, [[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]]);
const bytesPerSecond = (value) => isNumber(value) ? `${bytes(value)}/s` : "–";
const amount = (value) => scaled(value, [[1e9, "G"], [1e6, "M"], [1e4, "k"], [1, ""]]);
const clock = (seconds, hasSeconds = true) => new Date(seconds * 1e3).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: hasSeconds ? "2-digit" : undefined });

// ---------------------------------------------------------------- The history

/** As many points are kept; when there are more, the older half is thinned: the further back, the coarser. */
const CAPACITY = 1800;
const METRICS = ["made", "served", "sent", "received", "out", "in", "p50", "p99"];
/** What only grows, and is shown as a rate: the metric, and its counter. */
const RATES = [["made", "calls_made"], ["served", "calls_served"], ["sent", "bytes_out"], ["received", "bytes_in"]];
/** Colours of lines, and how they are dashed, so that the colours need not be told apart. */
const HUES = 8;
const DASHES = [[], [9, 3], [5, 3], [9, 3, 2, 3], [3, 3], [14, 4], [6, 3, 2, 3, 2, 3], [2, 3]];
/** After so many seconds without an answer, lines have a gap, unless the points around are as far apart from having been thinned. */
const GAP = 5;
function isAfterGap(at) {
  const step = times[at] - times[at - 1], usual = at > 1 ? times[at - 1] - times[at - 2] : times[at + 1] - times[at];
  return at > 0 && step > GAP && !(step < 3 * usual);
}

const times = new Float64Array(CAPACITY);
let length = 0;
/** Every worker that was ever heard of, by rank, with its history. */
const workers = new Map();
/** All of them together. */
const everybody = { series: newSeries() };
let latest = { id: null, time: NaN, world: new Map(), silent: [], calls: [], allCalls: 0, pairs: [], chains: [], moreChains: 0, meetings: [], cycles: [], suspects: [], size: 0 };

function newSeries() {
  return Object.fromEntries(METRICS.map((metric) => [metric, new Float32Array(CAPACITY).fill(NaN)]));
}
function workerOf(rank) {
  let worker = workers.get(rank);
  if (!worker) {
    worker = { rank, name: `rank ${rank}`, series: newSeries(), isChosen: false, isOpen: false, before: null };
    workers.set(rank, worker);
  }
  return worker;
}
const nameOf = (rank) => workers.get(rank)?.name ?? `rank ${rank}`;
const byRank = () => [...workers.values()].sort((a, b) => a.rank - b.rank);
const allSeries = () => [everybody, ...workers.values()].map((worker) => worker.series);

/** Makes one point of two in the older half: of a rate the mean, of all else the peak. */
function thin() {
  const half = CAPACITY / 2, kept = half / 2;
  for (let at = 0; at < kept; at++) times[at] = times[2 * at + 1];
  times.copyWithin(kept, half);
  for (const series of allSeries()) {
    METRICS.forEach((metric, number) => {
      const values = series[metric];
      for (let at = 0; at < kept; at++) {
        const [a, b] = [values[2 * at], values[2 * at + 1]];
        values[at] = !isNumber(a) ? b : !isNumber(b) ? a : number < RATES.length ? (a + b) / 2 : Math.max(a, b);
      }
      values.copyWithin(kept, half).fill(NaN, length - kept);
    });
  }
  length -= kept;
}
/** Adds a point that has no values yet. */
function addPoint(time) {
  if (length === CAPACITY) thin();
  times[length++] = time;
}
function forgetHistory() {
  length = 0;
  for (const series of allSeries()) for (const metric of METRICS) series[metric].fill(NaN);
  for (const worker of workers.values()) worker.before = null;
}

/** How many calls took how long: counts by the longest time that each is for. */
function addCounts(sums, counts) {
  for (const [longest, count] of counts) sums.set(longest, (sums.get(longest) ?? 0) + count);
  return sums;
}
/** The calls that were counted since; null when there are fewer than before, for then they were counted anew. */
function countsSince(now, before) {
  const since = new Map([...now].map(([longest, count]) => [longest, count - (before?.get(longest) ?? 0)]).filter(([, count]) => count !== 0));
  const isLess = [...since.values()].some((count) => count < 0) || [...before?.keys() ?? []].some((longest) => !now.has(longest));
  return isLess ? null : since;
}
const sumOf = (counts) => [...counts.values()].reduce((sum, count) => sum + count, 0);
/** A time that this share of the calls did not exceed. */
function percentile(counts, share) {
  const wanted = Math.max(Math.ceil(sumOf(counts) * share), 1);
  let seen = 0;
  for (const [longest, count] of [...counts].sort(([a], [b]) => a - b)) {
    seen += count;
    if (seen >= wanted) return longest;
  }
  return NaN;
}
/** The calls of a worker so far, by where they went. */
function readLatency(latency) {
  const counts = (one) => addCounts(new Map(), listOf(one.counts).filter((pair) => isNumber(pair?.[0]) && pair[1] > 0));
  return new Map(listOf(latency).filter((one) => isNumber(one?.to)).map((one) => [one.to, counts(one)]));
}
/** A chain of waits that is whole, whatever was missing. */
const readChain = ({ from, age, is_cycle: isCycle, text, calls }) => ({
  from, age: isNumber(age) ? age : NaN, isCycle: isCycle === true, text: typeof text === "string" ? text : "",
  calls: listOf(calls).filter((call) => isNumber(call?.on)).map((call) => ({ name: String(call.function ?? "?"), caller: call.caller, on: call.on, state: String(call.state ?? ""), isStuck: call.is_stuck === true })),
});
/** A call that somebody knows of. */
const readCall = ({ caller, callee, call, function: name, age, within, makes, state }) => ({
  caller, callee, call, name: String(name ?? "?"), age: isNumber(age) ? age : 0, within: listOf(within), makes: makes === true, state: String(state ?? ""),
});

/** Takes an answer in: makes it whole where parts are missing, and adds it to the history. */
function take(answer) {
  const time = isNumber(answer?.time) ? answer.time : Date.now() / 1e3;
  const entries = listOf(answer?.world).filter((entry) => isNumber(entry?.rank));
  const world = new Map(entries.sort((a, b) => a.rank - b.rank).map((entry) => [entry.rank, {
    ...entry, time: isNumber(entry.time) ? entry.time : time, counters: entry.counters ?? {}, latency: readLatency(entry.latency),
    recent: new Map(),
  }]));
  const silent = listOf(answer?.silent).filter((rank) => isNumber(rank) && !world.has(rank));
  // Another world has workers of the same ranks, but nothing else in common.
  const id = answer?.id ?? latest.id;
  if (latest.id !== null && id !== latest.id) forgetHistory();
  const calls = listOf(answer?.calls).filter((call) => call).map(readCall);
  latest = {
    id, time, world, silent, calls, allCalls: answer?.all_calls > calls.length ? answer.all_calls : calls.length,
    pairs: listOf(answer?.pairs).filter((pair) => listOf(pair).length === 4 && pair.every(isNumber)),
    meetings: listOf(answer?.meetings), cycles: listOf(answer?.cycles), suspects: listOf(answer?.suspects), size: Math.max(world.size + silent.length, ...entries.map((entry) => entry.size || 0)),
    chains: listOf(answer?.chains).filter((chain) => isNumber(chain?.from)).map(readChain), moreChains: answer?.more_chains > 0 ? answer.more_chains : 0,
  };
  // A clock that was set back would make the lines run backwards.
  if (length > 0 && time < times[length - 1] - 1) forgetHistory();
  if (length === 0 || time > times[length - 1]) addPoint(time);
  const at = length - 1, ended = new Map();
  for (const metric of METRICS) everybody.series[metric][at] = NaN;
  for (const [rank, entry] of world) {
    record(workerOf(rank), entry, at);
    for (const counts of entry.recent.values()) addCounts(ended, counts);
  }
  [everybody.series.p50[at], everybody.series.p99[at]] = [percentile(ended, 0.5), percentile(ended, 0.99)];
  for (const rank of silent) workerOf(rank);
  for (const [rank, worker] of workers) {
    if (world.has(rank)) continue;
    worker.before = null;
    // Whoever left is forgotten when the last of its points is gone.
    if (!silent.includes(rank) && worker.series.out.every(Number.isNaN)) workers.delete(rank);
  }
}
function record(worker, entry, at) {
  const { counters, time } = entry, { before, series } = worker;
  worker.name = entry.name ? String(entry.name) : worker.name;
  const now = { out: counters.calls_out, in: counters.calls_in };
  if (before && before.process === entry.process && time === before.time) {
    // What was seen the last time, again: nothing has changed since.
    entry.recent = before.recent;
    Object.assign(now, before.rates);
  } else {
    // Counters that are lower than before, or of another process, have begun anew: nothing is known of the time between.
    const isSame = before && before.process === entry.process && time > before.time && RATES.every(([, name]) => !(counters[name] < before.counters[name]));
    const rates = Object.fromEntries(RATES.map(([metric, name]) => [metric, isSame ? (counters[name] - before.counters[name]) / (time - before.time) : NaN]));
    if (isSame) for (const [to, counts] of entry.latency) {
      const since = countsSince(counts, before.latency.get(to));
      if (since?.size > 0) entry.recent.set(to, since);
    }
    const calls = [...entry.recent.values()].reduce(addCounts, new Map());
    Object.assign(rates, { p50: percentile(calls, 0.5), p99: percentile(calls, 0.99) });
    Object.assign(now, rates);
    worker.before = { process: entry.process, time, counters, latency: entry.latency, recent: entry.recent, rates };
  }
  for (const metric of METRICS) {
    const value = now[metric] ?? NaN, sum = everybody.series[metric];
    series[metric][at] = value;
    // Percentiles cannot be added up: those of everybody come from all of the calls.
    if (isNumber(value) && !metric.startsWith("p")) sum[at] = isNumber(sum[at]) ? sum[at] + value : value;
  }
}
/** The newest value of a metric. */
const newest = (series, metric) => length > 0 ? series[metric][length - 1] : NaN;

// ---------------------------------------------------------------- Asking

/** Between questions, until one is given up, and until it is said that the answer takes long: milliseconds. */
const INTERVAL = 1000, PATIENCE = 10000, LONG = 2500;
let isPaused = false, isAsking = false, timer = 0, lostSince = null, lastAnswer = null;
document.body.dataset.polls = 0;

/** The answer, or null when there is none. */
async function fetchStatus() {
  try {
    const response = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}
async function ask() {
  clearTimeout(timer);
  if (isPaused || document.hidden || isAsking) return;
  isAsking = true;
  const began = performance.now(), slow = setInterval(() => showState(performance.now() - began), 500), answer = await fetchStatus();
  clearInterval(slow);
  isAsking = false;
  if (!isPaused && !document.hidden) timer = setTimeout(ask, Math.max(INTERVAL - (performance.now() - began), 50));
  if (answer === null) {
    lostSince ??= lastAnswer ?? Date.now() / 1e3;
  } else {
    [lostSince, lastAnswer] = [null, Date.now() / 1e3];
    take(answer);
    document.body.dataset.polls = Number(document.body.dataset.polls) + 1;
    show();
  }
  showState();
}
/** Says how things are; what was seen last is shown for as long as an answer takes. */
function showState(waited = 0) {
  const [kind, text] = isPaused ? ["paused", "❚❚ Paused"] : lostSince !== null ? ["lost", `✕ No answer since ${clock(lostSince)}`]
    : waited >= LONG ? ["late", `… An answer takes long: ${span(Math.round(waited / 1e3))}`] : lastAnswer === null ? ["", "Waiting for the first answer"] : ["live", "● Live"];
  byId("state").className = `state ${kind}`;
  write(byId("state"), text);
  document.body.classList.toggle("stale", kind === "lost");
  announce("announce", "state", kind === "lost" ? text : kind === "late" ? "an answer takes long" : kind);
}
/** Tells those who listen, once for each change. */
const told = new Map();
function announce(region, subject, text) {
  if ((told.get(subject) ?? "") === text) return;
  told.set(subject, text);
  byId(region).textContent = text;
}
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", isPaused);
  byId("pause").textContent = isPaused ? "Resume" : "Pause";
  showState();
  ask();
});
document.addEventListener("visibilitychange", ask);

// ---------------------------------------------------------------- Painting

let theme = {};
function readTheme() {
  const hues = [...Array(HUES).keys()].map((hue) => `hue-${hue}`);
  theme = coloursOf(["surface", "line", "text", "muted", "accent", "second", ...hues]);
  theme.hues = hues.map((name) => theme[name]);
}
/**
 * Draws `values` from a point on: at most the least and the most of each column of pixels, and nothing where nothing is known.
 * Gives how many it has drawn.
 */
function trace(pen, values, from, toX, toY) {
  let column = -1, low = 0, high = 0, isOpen = false, isDot = false, lastX = 0, lastY = 0, points = 0;
  const flush = () => { if (column >= 0 && high - low > 0.5) { pen.lineTo(lastX, low); pen.lineTo(lastX, high); pen.lineTo(lastX, lastY); } };
  const close = () => { flush(); if (isDot) pen.lineTo(lastX + 1.5, lastY); column = -1; isOpen = isDot = false; };
  pen.beginPath();
  for (let at = from; at < length; at++) {
    if (!isNumber(values[at])) { close(); continue; }
    if (isAfterGap(at)) close();
    const x = toX(times[at]), y = toY(values[at]);
    if (Math.floor(x) !== column || !isOpen) {
      flush();
      if (isOpen) pen.lineTo(x, y); else pen.moveTo(x, y);
      [column, low, high, isDot, isOpen] = [Math.floor(x), y, y, !isOpen, true];
    } else [low, high] = [Math.min(low, y), Math.max(high, y)];
    [lastX, lastY] = [x, y];
    points++;
  }
  close();
  pen.stroke();
  return points;
}
/** The part of the history that the last so many seconds are. */
function recent(seconds, least) {
  const end = length > 0 ? times[length - 1] : 0, first = length > 0 ? times[0] : 0;
  const start = Math.max(end - seconds, Math.min(first, end - least));
  return { start, end, from: Math.max(lowerBound(times, start, 0, length) - 1, 0) };
}
// ---------------------------------------------------------------- The charts

const LEFT = 62, BOTTOM = 20, TOP = 8, RIGHT = 6;
/** Up to so many workers have a part of their own in every chart; of more, the busiest, and the rest together. */
const FEW = 8, BUSIEST = 6;
let range = 300, isStacked = null, drawsAll = false, emphasised = null;
/** Where the pointer, or the arrow keys, are: the chart, the number of the point, and the height. */
let cursor = null;

const charts = [
  { id: "calls", title: "Calls per second", format: perSecond, metric: "made", kinds: [["made", "made"], ["served", "served"]] },
  { id: "bytes", title: "Bytes per second", format: bytesPerSecond, metric: "sent", kinds: [["sent", "sent"], ["received", "received"]] },
  { id: "inflight", title: "Calls in flight", format: amount, metric: "out", kinds: [["out", "made"], ["in", "served"]], isWhole: true },
];
for (const chart of charts) {
  Object.assign(chart, { drawn: [], others: [], hues: new Map() });
  chart.lines = el("canvas", { tabindex: 0, role: "img" });
  chart.over = el("canvas", { "aria-hidden": "true" });
  chart.plot = el("div", { class: "plot" }, chart.lines, chart.over);
  chart.now = el("output", {});
  chart.legend = el("div", { class: "legend", role: "group", "aria-label": `${chart.title}: workers. Press one to let it stand out.` });
  const kinds = el("div", { class: "choice push", role: "group", "aria-label": `${chart.title}: which` });
  choice(kinds, chart.kinds, chart.metric, (metric) => { chart.metric = metric; showCharts(); });
  chart.card = el("div", { class: "card chart", "data-testid": `chart-${chart.id}` }, el("div", { class: "bar" }, el("h3", {}, chart.title), chart.now, kinds), chart.plot, chart.legend);
  byId("charts").append(chart.card);
  const point = (event) => {
    const box = chart.plot.getBoundingClientRect(), x = event.clientX - box.left, { start, end } = recent(range, 30);
    const time = start + (x - LEFT) / Math.max(box.width - LEFT - RIGHT, 1) * (end - start), next = lowerBound(times, time, 0, length);
    moveCursor(chart, next > 0 && (next === length || time - times[next - 1] < times[next] - time) ? next - 1 : next, event.clientY - box.top);
  };
  for (const kind of ["pointermove", "pointerdown"]) chart.lines.addEventListener(kind, point);
  for (const kind of ["pointerleave", "blur"]) chart.lines.addEventListener(kind, () => moveCursor(null));
  chart.lines.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -CAPACITY, End: CAPACITY }[event.key];
    if (event.key === "Escape") moveCursor(null);
    if (step === undefined || length === 0) return;
    event.preventDefault();
    const at = clamp((cursor?.at ?? length) + step, recent(range, 30).from, length - 1);
    moveCursor(chart, at, chart.plot.clientHeight / 2);
    byId("announce").textContent = [clock(times[at]), ...partsAt(chart, at).slice(0, 8).map(({ name, value }) => `${name} ${chart.format(value)}`)].join(", ");
  });
}

/** Decides who has a part of its own in a chart, and in which colour. Whoever has one keeps it while others are not much busier. */
function pick(chart, from) {
  const everyone = byRank();
  let drawn = everyone;
  if (everyone.length > FEW && !drawsAll) {
    const scores = new Map(everyone.map((worker) => {
      let score = 0;
      for (let at = from; at < length; at++) score += worker.series[chart.metric][at] || 0;
      return [worker, score * (chart.drawn.includes(worker) ? 1.25 : 1)];
    }));
    const busiest = new Set([...everyone].sort((a, b) => scores.get(b) - scores.get(a)).slice(0, BUSIEST));
    drawn = everyone.filter((worker) => worker.isChosen || busiest.has(worker));
  }
  const rest = everyone.filter((worker) => !drawn.includes(worker));
  chart.drawn = drawn;
  const hues = new Map(drawn.filter((worker) => chart.hues.has(worker)).map((worker) => [worker, chart.hues.get(worker)]));
  const isFree = (hue) => ![...hues.values()].includes(hue);
  for (const worker of drawn) {
    if (hues.has(worker)) continue;
    const own = worker.hue ??= rarestHue();
    hues.set(worker, drawn.length > HUES || isFree(own) ? own : [...Array(HUES).keys()].find(isFree) ?? own);
  }
  Object.assign(chart, { others: rest, hues });
  const anyChosen = drawn.some((worker) => worker.isChosen);
  chart.stands = (worker) => emphasised ? worker === emphasised : !anyChosen || worker.isChosen;
}
/** The colour that the fewest have in any chart: whoever gets it has it in all of them, where it can. */
function rarestHue() {
  const drawn = new Set(charts.flatMap((chart) => chart.drawn)), uses = new Array(HUES).fill(0);
  for (const worker of workers.values()) if (drawn.has(worker) && worker.hue !== undefined) uses[worker.hue]++;
  return uses.indexOf(Math.min(...uses));
}
/** How a worker's line is dashed: by its colour, in another way with every round of colours. */
const dashOf = (chart, worker) => DASHES[(chart.hues.get(worker) + (chart.drawn.length > HUES ? Math.floor(worker.rank / HUES) : 0)) % DASHES.length];
const colourOf = (chart, worker) => theme.hues[chart.hues.get(worker)];
const othersName = (chart) => `${chart.others.length} others`;
/** What a chart has at a moment, the largest first: workers, and the others together. */
function partsAt(chart, at) {
  const parts = chart.drawn.map((worker) => ({ worker, name: worker.name, value: worker.series[chart.metric][at] })).filter(({ value }) => isNumber(value)).sort((a, b) => b.value - a.value);
  const rest = othersAt(chart, at);
  return isNumber(rest) ? [...parts, { worker: null, name: othersName(chart), value: rest }] : parts;
}
/** The sum of those that have no part of their own. */
function othersAt(chart, at) {
  if (chart.others.length === 0 || !isNumber(everybody.series[chart.metric][at])) return NaN;
  return chart.others.reduce((sum, { series }) => sum + (series[chart.metric][at] || 0), 0);
}

/** A step between the lines of an axis, such that there are few, at round numbers. */
function stepOf(most, isWhole) {
  const power = 10 ** Math.floor(Math.log10(most / 3)), step = power * ([1, 2, 2.5, 5].find((factor) => factor * power >= most / 4) ?? 10);
  return isWhole ? Math.max(Math.ceil(step), 1) : step;
}
/** A number of an axis, without zeros that say nothing. */
const rounded = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const stacks = () => isStacked ?? workers.size > FEW;

function paintChart(chart) {
  const width = chart.plot.clientWidth, height = chart.plot.clientHeight;
  if (width < LEFT + 20) return;
  const pen = penOf(chart.lines, width, height), { start, end, from } = recent(range, 30);
  pick(chart, from);
  const highest = (series) => { let most = 0; for (let at = from; at < length; at++) if (series[chart.metric][at] > most) most = series[chart.metric][at]; return most; };
  const most = stacks() ? highest(everybody.series) : Math.max(0, ...[...workers.values()].map(({ series }) => highest(series)));
  const step = stepOf(most || 1, chart.isWhole), top = Math.max(Math.ceil(most / step - 1e-6), 1) * step;
  chart.toX = (time) => LEFT + (time - start) / (end - start) * (width - LEFT - RIGHT);
  chart.toY = (value) => height - BOTTOM - value / top * (height - BOTTOM - TOP);
  Object.assign(pen, { font: theme.font, textBaseline: "middle", textAlign: "right", fillStyle: theme.muted, strokeStyle: theme.line, lineWidth: 1 });
  for (let value = 0; value <= top * 1.001; value += step) {
    const y = Math.round(chart.toY(value)) + 0.5;
    pen.strokeRect(LEFT, y, width - LEFT - RIGHT, 0);
    pen.fillText(value === 0 ? "0" : rounded(chart.format(value)), LEFT - 7, y);
  }
  if (length > 0) {
    const every = TIME_STEPS.find((seconds) => seconds / (end - start) * (width - LEFT - RIGHT) >= 76) ?? 86400, offset = new Date(end * 1e3).getTimezoneOffset() * 60;
    pen.textAlign = "center";
    for (let time = Math.ceil((start - offset) / every) * every + offset; time <= end; time += every) {
      const x = Math.round(chart.toX(time));
      pen.fillRect(x, height - BOTTOM, 1, 4);
      if (x > LEFT + 12 && x < width - 26) pen.fillText(clock(time, every < 60), x, height - 8);
    }
  }
  if (!everybody.series[chart.metric].subarray(from, length).some(isNumber)) {
    pen.textAlign = "center";
    pen.fillText("nothing known yet", (width + LEFT) / 2, height / 2);
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT, height);
  pen.clip();
  Object.assign(pen, { lineJoin: "round", lineCap: "butt" });
  const points = (stacks() ? paintStack : paintLines)(pen, chart, from);
  pen.restore();
  const total = newest(everybody.series, chart.metric);
  write(chart.now, chart.format(total));
  chart.lines.setAttribute("aria-label", `${chart.title}, ${chart.kinds.find(([kind]) => kind === chart.metric)[1]}, by worker. Now ${chart.format(total)} in all. The arrow keys go from moment to moment.`);
  chart.card.dataset.drawn = chart.drawn.length;
  chart.card.dataset.others = chart.others.length;
  chart.card.dataset.points = points;
  showLegend(chart);
}
/** A line for each worker; those that have none lie somewhere in a grey band. Gives how many points the lines have. */
function paintLines(pen, chart, from) {
  const { metric, drawn, others } = chart;
  let points = 0;
  if (others.length > 0) {
    const band = stretches(metric, from).map(([first, stop]) => {
      const low = [], high = [];
      for (let at = first; at < stop; at++) {
        const values = others.map(({ series }) => series[metric][at]).filter(isNumber);
        low.push(values.length > 0 ? Math.min(...values) : 0);
        high.push(values.length > 0 ? Math.max(...values) : 0);
      }
      return { first, low, high };
    });
    for (const { first, low, high } of band) area(pen, chart, first, low, high, theme.muted, 0.25);
  }
  const isMany = drawn.length > 16;
  for (const worker of [...drawn].sort((a, b) => chart.stands(a) - chart.stands(b))) {
    const stands = chart.stands(worker);
    Object.assign(pen, { strokeStyle: colourOf(chart, worker), lineWidth: isMany ? 1.2 : 1.8, globalAlpha: !stands ? 0.2 : isMany ? 0.85 : 1 });
    pen.setLineDash(dashOf(chart, worker));
    points += trace(pen, worker.series[metric], from, chart.toX, chart.toY);
  }
  pen.globalAlpha = 1;
  return points;
}
/** Areas on top of each other: together they are as high as the sum of all. Gives how many points that sum has. */
function paintStack(pen, chart, from) {
  const { metric, drawn, others } = chart;
  for (const [first, stop] of stretches(metric, from)) {
    let low = new Float64Array(stop - first);
    const add = (valueAt, colour, alpha) => {
      const high = low.map((value, at) => value + (valueAt(first + at) || 0));
      area(pen, chart, first, low, high, colour, alpha);
      low = high;
    };
    for (const worker of drawn) add((at) => worker.series[metric][at], colourOf(chart, worker), chart.stands(worker) ? 0.78 : 0.16);
    if (others.length > 0) add((at) => othersAt(chart, at), theme.muted, 0.28);
  }
  Object.assign(pen, { strokeStyle: theme.text, lineWidth: 1.4 });
  pen.setLineDash([]);
  return trace(pen, everybody.series[metric], from, chart.toX, chart.toY);
}
/** The parts of the history, from a point on, in which something is known without a gap: `[first, stop]` of each. */
function stretches(metric, from) {
  const found = [], known = everybody.series[metric];
  for (let at = from; at < length; at++) {
    if (!isNumber(known[at])) continue;
    if (at > from && isNumber(known[at - 1]) && !isAfterGap(at)) found.at(-1)[1] = at + 1; else found.push([at, at + 1]);
  }
  return found;
}
/** What lies between two lines that begin with the point `first`. */
function area(pen, { toX, toY }, first, low, high, colour, alpha) {
  const x = (at) => toX(times[first + at]);
  pen.beginPath();
  for (let at = 0; at < high.length; at++) pen.lineTo(x(at), toY(high[at]));
  for (let at = low.length - 1; at >= 0; at--) pen.lineTo(x(at), toY(low[at]));
  Object.assign(pen, { fillStyle: colour, globalAlpha: alpha });
  pen.fill();
  pen.globalAlpha = 1;
}
function paintOver() {
  for (const chart of charts) {
    const pen = penOf(chart.over, chart.plot.clientWidth, chart.plot.clientHeight);
    if (!cursor || !chart.toX) continue;
    const x = chart.toX(times[cursor.at]);
    if (x < LEFT) continue;
    pen.fillStyle = theme.muted;
    pen.fillRect(Math.round(x), TOP, 1, chart.plot.clientHeight - TOP - BOTTOM);
    const dots = stacks() ? [[theme.text, everybody.series[chart.metric][cursor.at]]] : chart.drawn.map((worker) => [colourOf(chart, worker), worker.series[chart.metric][cursor.at]]);
    for (const [fillStyle, value] of dots) {
      if (!isNumber(value)) continue;
      Object.assign(pen, { fillStyle, strokeStyle: theme.surface, lineWidth: 1.5 });
      pen.beginPath();
      pen.arc(x, chart.toY(value), 3.5, 0, 7);
      pen.fill();
      pen.stroke();
    }
  }
  if (!cursor) { tooltip.hidden = true; return; }
  const { chart, at, y } = cursor, parts = partsAt(chart, at), box = chart.plot.getBoundingClientRect(), some = parts.slice(0, 14), rest = parts.length - some.length;
  const sum = everybody.series[chart.metric][at];
  const row = (name, value, ...key) => el("tr", {}, el("th", {}, ...key, name), el("td", { class: "number" }, chart.format(value)));
  const rows = some.map(({ worker, name, value }) => row(name, value, keyOf(chart, worker)));
  if (isNumber(sum) && parts.length > 1) rows.push(el("tr", { class: "sum" }, el("th", {}, "all together"), el("td", { class: "number" }, chart.format(sum))));
  showTooltip(box.left + chart.toX(times[at]), box.top + y, el("b", {}, clock(times[at])), el("table", {}, el("tbody", {}, rows)),
    ...(rest > 0 ? [el("span", { class: "quiet" }, `and ${rest} more`)] : []), ...(parts.length === 0 ? [el("div", { class: "quiet" }, "nothing known")] : []));
}
function moveCursor(chart, at, y) {
  if (!chart && !cursor) return;
  cursor = chart && length > 0 ? { chart, at: Math.min(at, length - 1), y } : null;
  later("over", paintOver);
}
const showCharts = () => later("charts", () => {
  charts.forEach(paintChart);
  if (cursor) { cursor.at = Math.min(cursor.at, length - 1); paintOver(); }
});
choice(byId("range"), [[60, "1 min"], [300, "5 min"], [1800, "30 min"], [Infinity, "Everything"]], range, (seconds) => { range = seconds; showCharts(); });
const pressLook = choice(byId("look"), [[true, "Stacked"], [false, "Lines"]], null, (stacked) => { isStacked = stacked; showCharts(); });
choice(byId("which"), [[false, `Busiest ${BUSIEST}`], [true, "All"]], drawsAll, (all) => { drawsAll = all; showCharts(); });

/** A piece of a worker's part of a chart, or of that of the others. */
function keyOf(chart, worker) {
  const colour = worker ? `var(--hue-${chart.hues.get(worker)})` : "var(--muted)";
  const key = stacks() || !worker ? svg("rect", { x: 1, y: 0, width: 12, height: 10, rx: 2, fill: colour, "fill-opacity": worker ? 0.78 : 0.4 })
    : svg("path", { d: "M1 5H23", "stroke-width": 2.4, stroke: colour, "stroke-dasharray": dashOf(chart, worker).join(" ") });
  return svg("svg", { width: stacks() ? 14 : 24, height: 10, "aria-hidden": "true" }, key);
}
/** Lets a worker stand out in the charts, or no longer. */
function toggleChosen(worker) {
  worker.isChosen = !worker.isChosen;
  showChosen();
}
function showChosen() {
  const chosen = byRank().filter((worker) => worker.isChosen);
  byId("clear-chosen").hidden = chosen.length === 0;
  write(byId("clear-chosen"), chosen.length === 1 ? `✕ ${chosen[0].name}` : `✕ ${chosen.length} chosen`);
  showWorkers();
  showCharts();
}
byId("clear-chosen").addEventListener("click", () => { for (const worker of workers.values()) worker.isChosen = false; showChosen(); });
/** Who has which part of a chart, with what it has now. */
function showLegend(chart) {
  const make = () => {
    const button = el("button", {
      onclick() { if (button.of) toggleChosen(button.of); },
      onpointerenter() { emphasised = button.of; showCharts(); },
      onpointerleave() { emphasised = null; showCharts(); },
    }, el("span"), el("span", { class: "who" }), el("span", { class: "number" }));
    return button;
  };
  fill(chart.legend, [...chart.drawn, ...(chart.others.length > 0 ? [null] : [])], make, (button, worker) => {
    const looks = `${stacks()} ${worker ? `${chart.hues.get(worker)} ${dashOf(chart, worker)}` : ""}`, [key, who, now] = button.children;
    if (button.of !== worker || button.looks !== looks) key.replaceChildren(keyOf(chart, worker));
    Object.assign(button, { of: worker, looks, disabled: worker === null, title: worker?.name ?? "" });
    write(who, worker ? worker.name : othersName(chart));
    write(now, chart.format(worker ? newest(worker.series, chart.metric) : length > 0 ? othersAt(chart, length - 1) : NaN));
    if (worker) button.setAttribute("aria-pressed", Boolean(worker.isChosen)); else button.removeAttribute("aria-pressed");
  });
}

// ---------------------------------------------------------------- The workers

const SMALL = 300;
/** More than so many workers have a line of text each, unless it is asked for otherwise. */
const MOST_ROOMY = 12;
let isCompact = null;
byId("worker-filter").addEventListener("input", () => showWorkers());
byId("compact").addEventListener("click", () => { isCompact = byId("compact").getAttribute("aria-pressed") !== "true"; showWorkers(); });
/** The columns: a heading, what to sort by, and the text; or two lines with a small chart. */
const count = (name) => ({ counters }) => counters[name];
const pair = (a, b) => ({ counters }) => `${grouped(counters[a])} / ${grouped(counters[b])}`;
const columns = [
  { title: "Worker", by: null },
  { title: "In\u00a0flight", by: count("calls_out"), text: ({ counters }) => grouped(counters.calls_out), hint: "calls made that are under way" },
  { title: "Calls per second", by: "made", duo: [["made", "made"], ["served", "served"]], format: perSecond },
  { title: "Bytes per second", by: "received", duo: [["received", "in"], ["sent", "out"]], format: bytesPerSecond },
  { title: "Latency", by: "p99", duo: [["p50", "p50"], ["p99", "p99"]], format: span, isLog: true, hint: "of all calls that have ended since the last look: half of them took no longer than the one, 99 of 100 no longer than the other" },
  { title: "Queued", by: count("queued"), text: ({ counters }) => grouped(counters.queued), warns: ({ counters }) => counters.queued > 0 && counters.idle_threads === 0, hint: "calls that wait for a thread" },
  { title: "Running / blocked", by: count("blocked"), text: pair("running", "blocked"), warns: ({ counters }) => counters.blocked > 0 && counters.blocked >= counters.threads },
  { title: "Idle / threads", by: count("idle_threads"), text: pair("idle_threads", "threads") },
  { title: "References owned\u00a0/\u00a0held", by: count("references_held"), text: pair("references_owned", "references_held"), hint: "to objects that it owns, and that it holds of others" },
  { title: "Contexts", by: count("contexts"), text: ({ counters }) => grouped(counters.contexts), hint: "autograd contexts" },
];
let sorting = { column: columns[0], isDown: false };
const seen = new Set(), watcher = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) if (isIntersecting) seen.add(target); else seen.delete(target);
  later("small", paintSmall);
});
for (const column of columns) {
  column.head = el("th", { scope: "col", class: column.text ? "number" : null, title: column.hint ?? null }, el("button", { class: "sort", onclick() {
    sorting = { column, isDown: sorting.column === column ? !sorting.isDown : column.by !== null };
    showWorkers();
  } }, column.title), column.duo ? el("span", { class: "two-lines", "aria-hidden": "true" }, column.duo.map(([, label], at) => el("span", { class: at === 1 ? "two" : null }, label))) : "");
  byId("workers").tHead.rows[0].append(column.head);
}
function makeRow(worker) {
  const button = el("button", { class: "name", "aria-expanded": false, onclick() { worker.isOpen = !worker.isOpen; showWorkers(); } });
  const pin = el("button", { class: "pin", title: "Stands out in the charts", onclick() { toggleChosen(worker); } });
  const cells = columns.slice(1).map((column) => {
    if (!column.duo) return el("td", { class: "number" }, el("div", { class: "cell" }));
    const parts = column.duo.flatMap(([, label], at) => [el("span", { class: at === 1 ? "two" : null }, label), el("b")]);
    return el("td", {}, el("div", { class: "duo" }, parts, el("canvas", { "aria-hidden": "true" })));
  });
  const row = el("tr", { "data-testid": `worker-${worker.rank}` }, el("th", { scope: "row" }, pin, button, el("span", { class: "under" })), cells);
  row.of = worker;
  watcher.observe(row);
  return row;
}
const counterName = (name) => name.replaceAll("_", " ");
function showMore(worker, entry) {
  worker.more ??= el("tr", { class: "more" }, el("td", { colspan: columns.length }, el("h3", {}, "All counters"), el("dl", { class: "facts" }), el("h3", {}, "Latency by destination: p50 / p99 (calls)"), el("dl", { class: "facts" })));
  const fact = () => el("div", {}, el("dt"), el("dd"));
  const put = (node, [name, text]) => { write(node.firstElementChild, name); write(node.lastElementChild, text); };
  const [counters, latency] = worker.more.querySelectorAll("dl");
  fill(counters, [["process", String(entry?.process ?? "–")], ...Object.entries(entry?.counters ?? {}).map(([name, value]) => [counterName(name), grouped(value)])], fact, put);
  fill(latency, [...entry?.recent ?? []].map(([to, counts]) => [`to ${nameOf(to)}`, `${span(percentile(counts, 0.5))} / ${span(percentile(counts, 0.99))} (${amount(sumOf(counts))})`]), fact, put);
  return worker.more;
}
function showWorkers() {
  const { world, silent } = latest, { by } = sorting.column;
  const key = (worker) => typeof by === "string" ? newest(worker.series, by) : by(world.get(worker.rank) ?? { counters: {} });
  // Whoever is silent comes last, and so does what is not known.
  const words = byId("worker-filter").value.trim().toLowerCase();
  const all = byRank().filter(({ rank }) => world.has(rank) || silent.includes(rank));
  const shown = all.filter(({ name, rank }) => words === "" || name.toLowerCase().includes(words) || String(rank) === words);
  if (by === null && sorting.isDown) shown.reverse();
  if (by !== null) {
    const keys = new Map(shown.map((worker) => [worker, key(worker)])), sign = sorting.isDown ? -1 : 1;
    shown.sort((a, b) => isNumber(keys.get(a)) && isNumber(keys.get(b)) ? sign * (keys.get(a) - keys.get(b)) : isNumber(keys.get(b)) - isNumber(keys.get(a)));
  }
  for (const column of columns) {
    if (column === sorting.column) column.head.setAttribute("aria-sort", sorting.isDown ? "descending" : "ascending"); else column.head.removeAttribute("aria-sort");
  }
  const rows = [];
  for (const worker of shown) {
    const entry = world.get(worker.rank), row = worker.row ??= makeRow(worker), [head, ...cells] = row.cells, [pin, name, under] = head.children;
    row.classList.toggle("silent", !entry);
    pin.setAttribute("aria-pressed", worker.isChosen);
    pin.setAttribute("aria-label", `${worker.name} stands out in the charts`);
    write(name, worker.name);
    name.setAttribute("aria-expanded", worker.isOpen);
    write(under, entry ? `rank ${worker.rank}${entry.process === undefined ? "" : ` · ${entry.process}`}` : "✕ no answer");
    columns.slice(1).forEach((column, at) => {
      if (column.duo) column.duo.forEach(([metric], line) => write(cells[at].querySelectorAll("b")[line], column.format(newest(worker.series, metric))));
      else write(cells[at].firstElementChild, entry ? column.text(entry) : "–");
      cells[at].firstElementChild.classList.toggle("warn", Boolean(entry && column.warns?.(entry)));
    });
    rows.push(row);
    if (worker.isOpen) rows.push(showMore(worker, entry));
  }
  const body = byId("workers").tBodies[0];
  if (rows.length !== body.rows.length || rows.some((row, at) => body.rows[at] !== row)) {
    const focused = document.activeElement;
    for (const row of body.rows) if (!rows.includes(row)) { seen.delete(row); }
    body.replaceChildren(...rows);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }
  byId("workers").hidden = rows.length === 0;
  byId("no-workers").hidden = rows.length > 0;
  write(byId("no-workers"), all.length > 0 ? "No worker has such a name." : "No worker answers: none has joined yet, or all have left.");
  write(byId("workers-note"), shown.length < all.length ? `${shown.length} of ${all.length}` : "");
  const isDense = isCompact ?? all.length > MOST_ROOMY;
  byId("workers").classList.toggle("dense", isDense);
  byId("compact").setAttribute("aria-pressed", isDense);
  later("small", paintSmall);
}
/** The small charts of the rows that are in sight. */
function paintSmall() {
  const { start, end, from } = recent(SMALL, 30);
  // One scale of latencies for all, of whole powers of ten.
  let [low, high] = [Infinity, 0];
  for (const { series } of workers.values()) {
    for (let at = from; at < length; at++) {
      if (series.p50[at] > 0 && series.p50[at] < low) low = series.p50[at];
      if (series.p99[at] > high) high = series.p99[at];
    }
  }
  [low, high] = [Math.floor(Math.log10(low < Infinity ? low : 1e-6)), Math.ceil(Math.log10(high || 1))];
  for (const row of seen) {
    const canvases = row.querySelectorAll("canvas"), { series } = row.of;
    columns.filter(({ duo }) => duo).forEach((column, number) => {
      const canvas = canvases[number], width = canvas.clientWidth, height = canvas.clientHeight;
      if (width < 10) return;
      const pen = penOf(canvas, width, height), values = column.duo.map(([metric]) => series[metric]);
      let most = 0;
      if (!column.isLog) for (const line of values) for (let at = from; at < length; at++) if (line[at] > most) most = line[at];
      const share = column.isLog ? (value) => (Math.log10(Math.max(value, 1e-9)) - low) / Math.max(high - low, 1) : (value) => value / (most || 1);
      pen.fillStyle = theme.line;
      pen.fillRect(0, height - 1, width, 1);
      Object.assign(pen, { lineWidth: 1.4, lineJoin: "round" });
      [[theme.accent, []], [theme.second, [4, 2]]].forEach(([strokeStyle, dash], line) => {
        pen.strokeStyle = strokeStyle;
        pen.setLineDash(dash);
        trace(pen, values[line], from, (time) => (time - start) / (end - start) * (width - 1), (value) => height - 2 - share(value) * (height - 5));
      });
    });
  }
}

// ---------------------------------------------------------------- Calls under way

/** The end of a path: where there is little room, the modules that all have in common say the least. */
const lastOf = (name) => name.includes("<") ? name : name.split("::").slice(-2).join("::");
const MOST_CALLS = 60, MOST_CHAINS = 60;
function showCalls() {
  const { calls, allCalls } = latest;
  const words = byId("call-filter").value.trim().toLowerCase();
  const texts = (call) => `${call.name}\n${nameOf(call.caller)} → ${nameOf(call.callee)}\n${call.state}`.toLowerCase();
  const kept = words === "" ? calls : calls.filter((call) => texts(call).includes(words));
  const make = () => el("tr", {}, el("td", { class: "number" }), el("td", { class: "function" }, el("code"), " ", el("small", { class: "quiet" })), el("td"), el("td"));
  fill(byId("calls").tBodies[0], kept.slice(0, MOST_CALLS), make, ({ cells }, { age, name, caller, callee, call, state, within, makes }) => {
    write(cells[0], span(age));
    write(cells[1].firstElementChild, lastOf(String(name ?? "?")));
    write(cells[1].lastElementChild, `call ${call ?? "?"}${makes ? ", makes a value" : ""}${within.length === 2 ? `, made within ${within[1]} of ${nameOf(within[0])}` : ""}`);
    cells[1].title = `${name ?? "?"}, ${cells[1].lastElementChild.textContent}`;
    write(cells[2], `${nameOf(caller)} → ${nameOf(callee)}`);
    write(cells[3], state);
    cells[3].className = state === "runs" ? "quiet" : state === "unknown there" ? "bad" : "";
  });
  byId("calls").hidden = kept.length === 0;
  byId("no-calls").hidden = kept.length > 0;
  write(byId("no-calls"), calls.length > 0 ? "No call under way is like that." : "No call is under way.");
  // Only the oldest are told one by one.
  const all = words === "" ? allCalls : kept.length, shown = Math.min(kept.length, MOST_CALLS);
  write(byId("calls-note"), all > shown ? `${shown} of ${grouped(all)}` : all > 0 ? counted(all, "call") : "");
}
byId("call-filter").addEventListener("input", showCalls);

let matrixKind = "calls", matrixKey = "";
const cells = new Map();
choice(byId("matrix-kind"), [["calls", "calls under way"], ["latency", "latency"]], matrixKind, (kind) => { matrixKind = kind; showMatrix(); });
const map = heatMap(byId("map"), { describe: (pair) => pair?.said ?? (matrixKind === "calls" ? "no call under way" : "no call since the last look") });
/** Rebuilds the table of who calls whom when there are others than before. */
function layMatrix(ranks) {
  const key = JSON.stringify(ranks.map((rank) => [rank, nameOf(rank), latest.world.has(rank)]));
  if (key === matrixKey) return;
  matrixKey = key;
  cells.clear();
  const table = byId("matrix"), label = (rank) => `${nameOf(rank)}${latest.world.has(rank) ? "" : " ✕"}`;
  table.tHead.replaceChildren(el("tr", {}, el("th", {}, "from ↓ to →"), ranks.map((rank) => el("th", { scope: "col" }, label(rank)))));
  table.tBodies[0].replaceChildren(...ranks.map((from) => el("tr", {}, el("th", { scope: "row" }, label(from)), ranks.map((to) => {
    const cell = el("td", { class: "none" }, "·");
    cells.set(`${from}:${to}`, cell);
    return cell;
  }))));
}
/** How deep the colour of a length of time is: on a logarithmic scale, from none at `from` to all at `to`. */
const depth = (seconds, from, to) => Math.min(Math.max(Math.log(Math.max(seconds, from) / from) / Math.log(to / from), 0.06), 1);
/** For each pair of workers, what there is to show of it. */
function pairsOf() {
  const pairs = new Map();
  if (matrixKind === "calls") {
    for (const [from, to, weight, age] of latest.pairs) {
      pairs.set(`${from}:${to}`, { from, to, weight, strong: grouped(weight), small: span(age), part: depth(age, 1e-3, 60), said: `${counted(weight, "call")}, the oldest ${span(age)}` });
    }
    return pairs;
  }
  for (const [from, { recent }] of latest.world) {
    for (const [to, counts] of recent) {
      const [p50, p99, weight] = [percentile(counts, 0.5), percentile(counts, 0.99), sumOf(counts)];
      pairs.set(`${from}:${to}`, { from, to, weight, strong: span(p99), small: span(p50), part: depth(p99, 1e-5, 1), said: `p50 ${span(p50)}, p99 ${span(p99)} of ${counted(weight, "call")}` });
    }
  }
  return pairs;
}
let filled = new Map();
function showMatrix() {
  const { world, silent } = latest, pairs = pairsOf();
  const ranks = [...new Set([...world.keys(), ...silent, ...latest.pairs.flatMap(([from, to]) => [from, to])])].filter(isNumber).sort((a, b) => a - b);
  const isMany = ranks.length > MOST_IN_TABLE;
  byId("pairs-columns").classList.toggle("map", isMany);
  byId("no-pairs").hidden = ranks.length > 0;
  byId("matrix").hidden = isMany || ranks.length === 0;
  byId("map").hidden = !isMany;
  const said = ranks.length === 0 ? "" : matrixKind === "calls" ? (isMany ? "the deeper, the older the oldest call; bars: how many" : "how many, and how old the oldest is") : isMany ? "the deeper, the higher the p99 since the last look" : "p99, and p50, since the last look";
  write(byId("matrix-note"), said);
  const stuck = matrixKind === "calls" ? stuckPairs() : new Set();
  if (isMany) {
    const place = new Map(ranks.map((rank, at) => [rank, at]));
    map.show(ranks.map(nameOf), [...pairs.values()].filter(({ from, to }) => place.has(from) && place.has(to)).map((pair) => ({
      ...pair, row: place.get(pair.from), column: place.get(pair.to), isBad: stuck.has(`${pair.from}:${pair.to}`),
    })));
    byId("map").setAttribute("aria-label", `Who calls whom: ${counted(pairs.size, "pair")} of ${ranks.length} workers. The arrow keys go from pair to pair.`);
    return;
  }
  layMatrix(ranks);
  for (const [key, cell] of filled) if (!pairs.has(key)) { cell.className = "none"; write(cell, "·"); cell.style.removeProperty("--part"); }
  filled = new Map();
  for (const [key, { strong, small, part }] of pairs) {
    const cell = cells.get(key);
    if (!cell) continue;
    filled.set(key, cell);
    if (!cell.firstElementChild) cell.replaceChildren(el("b"), el("small"));
    cell.className = stuck.has(key) ? "stuck" : "";
    write(cell.firstElementChild, strong);
    write(cell.lastElementChild, small);
    cell.style.setProperty("--part", part.toFixed(2));
  }
}

/** Pairs of workers of which one waits for the other in a circle. */
function stuckPairs() {
  return new Set(latest.chains.flatMap(({ calls }) => calls).filter(({ isStuck }) => isStuck).map(({ caller, on }) => `${caller}:${on}`));
}
/** The chains that were opened, to be read in full. */
const openChains = new Set();
function showChains() {
  const { chains, moreChains, meetings, suspects } = latest, notes = [...meetings.map(String), ...suspects.map((text) => `Possible cycle: ${text}`)];
  byId("notes").hidden = notes.length === 0;
  fill(byId("notes"), notes, () => el("li"), (item, text) => {
    if (item.text === text) return;
    item.text = text;
    item.replaceChildren(...withCode(text));
  });
  const make = () => {
    const details = el("details", { ontoggle() { if (details.open) openChains.add(details.key); else openChains.delete(details.key); } },
      el("summary", {}, el("span", { class: "age number" }), el("span", { class: "way" }), el("span", { class: "end" })), el("div", { class: "chain" }));
    return el("li", {}, details);
  };
  fill(byId("chains"), chains.slice(0, MOST_CHAINS), make, (item, { from, age, isCycle, text, calls }) => {
    const details = item.firstElementChild, [when, way, end] = details.firstElementChild.children, last = calls.at(-1);
    const key = JSON.stringify([from, calls.map(({ name, on }) => [name, on])]), path = [from, ...calls.map(({ on }) => on)].map(nameOf), looks = path.join("\n");
    item.classList.toggle("round", isCycle);
    write(when, span(age));
    if (details.key !== key || details.looks !== looks) way.replaceChildren(...path.flatMap((worker, at) => at > 0 ? [el("i", {}, " → "), worker] : [worker]), " ", el("code", {}, last?.name ?? ""));
    write(end, isCycle ? "⟳ deadlock" : last?.state ?? "");
    Object.assign(details, { key, looks, open: openChains.has(key) });
    if (!details.open || details.text === text) return;
    details.text = text;
    details.lastElementChild.replaceChildren(...text.split("\n").map((line) => el("div", { style: { "--level": (line.length - line.trimStart().length) / 2 } }, withCode(line.trim()))));
  });
  const all = chains.length + moreChains, shown = Math.min(chains.length, MOST_CHAINS);
  byId("no-chains").hidden = all + notes.length > 0;
  write(byId("chains-note"), all > shown ? `${grouped(shown)} of ${grouped(all)}: circles first, then those that wait for longest` : all > 0 ? "for more than a second: circles first, then the longest" : "");
}

// ---------------------------------------------------------------- Alerts, and all of it

const MOST_SILENT = 6;
function showAlerts() {
  const { cycles, silent, time } = latest, texts = cycles.map(String);
  const headline = texts.length === 0 ? "" : `Deadlock: ${texts.length === 1 ? "calls wait for each other in a circle" : `${texts.length} circles of calls that wait for each other`}, and none can go on`;
  byId("cycles").hidden = texts.length === 0;
  write(byId("cycles").querySelector("h2"), headline);
  fill(byId("cycles").querySelector("ul"), texts, () => el("li"), (item, text) => {
    if (item.text === text) return;
    item.text = text;
    item.replaceChildren(...text.split("\n").map((line) => el("div", {}, withCode(line))));
  });
  announce("urgent", "cycles", headline);
  for (const [rank, worker] of workers) worker.silentSince = silent.includes(rank) ? worker.silentSince ?? time : null;
  const label = (rank) => nameOf(rank) === `rank ${rank}` ? nameOf(rank) : `${nameOf(rank)} (rank ${rank})`;
  const said = silent.length === 0 ? "" : `${silent.length === 1 ? "A worker does" : `${silent.length} workers do`} not answer: `;
  byId("silent").hidden = silent.length === 0;
  // The longest first, and of many some: all of them are in the table.
  const since = (rank) => time - (workers.get(rank)?.silentSince ?? time), first = [...silent].sort((a, b) => since(b) - since(a)).slice(0, MOST_SILENT);
  const parts = first.map((rank) => since(rank) >= 2 ? `${label(rank)} for ${span(Math.round(since(rank)))}` : label(rank));
  const text = parts.join(", ") + (silent.length > first.length ? `, and ${silent.length - first.length} more` : "");
  const box = byId("silent").lastElementChild;
  if (box.text !== said + text) box.replaceChildren(el("b", {}, said), text);
  box.text = said + text;
  announce("urgent", "silent", said + silent.slice(0, MOST_SILENT).map(label).join(", "));
  document.title = `${texts.length > 0 ? "⚠ Deadlock – " : silent.length > 0 ? `(${silent.length} silent) ` : ""}Telegrad dashboard`;
}
function show() {
  const { world, size } = latest;
  write(byId("total-workers"), size > world.size ? `${world.size} of ${size}` : String(world.size));
  write(byId("total-workers-label"), size === 1 ? "worker" : "workers");
  write(byId("total-calls"), perSecond(newest(everybody.series, "made")));
  write(byId("total-bytes"), bytesPerSecond(newest(everybody.series, "sent")));
  write(byId("total-inflight"), grouped(newest(everybody.series, "out")));
  const [p50, p99] = ["p50", "p99"].map((metric) => newest(everybody.series, metric));
  write(byId("total-latency"), isNumber(p50) ? `${span(p50)} / ${span(p99)}` : "–");
  showAlerts();
  pressLook(stacks());
  byId("which").hidden = workers.size <= FEW;
  showCharts();
  showWorkers();
  showMatrix();
  showCalls();
  showChains();
}

onThemeChange(() => { readTheme(); showCharts(); later("small", paintSmall); });
new ResizeObserver(() => { showCharts(); later("small", paintSmall); }).observe(byId("charts"));
readTheme();
show();
ask();
