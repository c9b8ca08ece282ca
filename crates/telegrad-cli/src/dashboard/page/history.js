// The history of all answers, up to a fixed capacity.

/** Maximum number of points. Beyond it, the older half is thinned, so older points are coarser. */
const CAPACITY = 1800;
const METRICS = ["made", "served", "sent", "received", "out", "in", "p50", "p99"];
/** Counters that are shown as rates: the metric, and its counter. */
const RATES = [["made", "calls_made"], ["served", "calls_served"], ["sent", "bytes_out"], ["received", "bytes_in"]];
/** Number of line colours, and dash patterns that distinguish lines without colour. */
const HUES = 8;
const DASHES = [[], [9, 3], [5, 3], [9, 3, 2, 3], [3, 3], [14, 4], [6, 3, 2, 3, 2, 3], [2, 3]];
/** Seconds without an answer that leave a gap in the lines, unless thinning has spread the points that far. */
const GAP = 5;
function isAfterGap(at) {
  const step = times[at] - times[at - 1], usual = at > 1 ? times[at - 1] - times[at - 2] : times[at + 1] - times[at];
  return at > 0 && step > GAP && !(step < 3 * usual);
}

const times = new Float64Array(CAPACITY);
let length = 0;
/** All workers seen so far, by rank, with their history. */
const workers = new Map();
/** The totals of all workers. */
const totals = { series: newSeries() };
let latest = { id: null, time: NaN, world: new Map(), silent: [], calls: [], allCalls: 0, pairs: [], chains: [], moreChains: 0, barriers: [], cycles: [], suspects: [], size: 0 };

function newSeries() {
  return Object.fromEntries(METRICS.map((metric) => [metric, new Float32Array(CAPACITY).fill(NaN)]));
}
function workerOf(rank) {
  let worker = workers.get(rank);
  if (!worker) {
    worker = { rank, name: unnamed(rank), series: newSeries(), isChosen: false, isOpen: false, before: null };
    workers.set(rank, worker);
  }
  return worker;
}
const nameOf = (rank) => workers.get(rank)?.name ?? unnamed(rank);
const byRank = () => [...workers.values()].sort((a, b) => a.rank - b.rank);
const allSeries = () => [totals, ...workers.values()].map((worker) => worker.series);

/** Merges pairs of points in the older half: the mean of rates, the maximum of other values. */
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
/** Adds a point without values. */
function addPoint(time) {
  if (length === CAPACITY) thin();
  times[length++] = time;
}
function forgetHistory() {
  length = 0;
  for (const series of allSeries()) for (const metric of METRICS) series[metric].fill(NaN);
  for (const worker of workers.values()) worker.before = null;
}

/** Latency counts, by the upper bound of each bucket. */
function addCounts(sums, counts) {
  for (const [longest, count] of counts) sums.set(longest, (sums.get(longest) ?? 0) + count);
  return sums;
}
/** The calls counted since; null if a count is lower than before, because the counter has restarted. */
function countsSince(now, before) {
  const since = new Map([...now].map(([longest, count]) => [longest, count - (before?.get(longest) ?? 0)]).filter(([, count]) => count !== 0));
  const isLess = [...since.values()].some((count) => count < 0) || [...before?.keys() ?? []].some((longest) => !now.has(longest));
  return isLess ? null : since;
}
const sumOf = (counts) => [...counts.values()].reduce((sum, count) => sum + count, 0);
/** The latency that this share of the calls did not exceed. */
function percentile(counts, share) {
  const wanted = Math.max(Math.ceil(sumOf(counts) * share), 1);
  let seen = 0;
  for (const [longest, count] of [...counts].sort(([a], [b]) => a - b)) {
    seen += count;
    if (seen >= wanted) return longest;
  }
  return NaN;
}
/** The latency counts of a worker, by callee. */
function readLatency(latency) {
  const counts = (one) => addCounts(new Map(), listOf(one.counts).filter((pair) => isNumber(pair?.[0]) && pair[1] > 0));
  return new Map(listOf(latency).filter((one) => isNumber(one?.to)).map((one) => [one.to, counts(one)]));
}
/** Parses a wait chain; missing parts get defaults. */
const readChain = ({ from, age, is_cycle: isCycle, text, calls }) => ({
  from, age: isNumber(age) ? age : NaN, isCycle: isCycle === true, text: typeof text === "string" ? text : "",
  calls: listOf(calls).filter((call) => isNumber(call?.on)).map((call) => ({ name: String(call.function ?? "?"), caller: call.caller, on: call.on, state: String(call.state ?? ""), isStuck: call.is_stuck === true })),
});
/** Parses a call in flight. */
const readCall = ({ caller, callee, call, function: name, age, within, makes, state }) => ({
  caller, callee, call, name: String(name ?? "?"), age: isNumber(age) ? age : 0, within: listOf(within), makes: makes === true, state: String(state ?? ""),
});

/** Parses an answer, with defaults for missing parts, and adds it to the history. */
function take(answer) {
  const time = isNumber(answer?.time) ? answer.time : Date.now() / 1e3;
  const entries = listOf(answer?.world).filter((entry) => isNumber(entry?.rank));
  const world = new Map(entries.sort((a, b) => a.rank - b.rank).map((entry) => [entry.rank, {
    ...entry, time: isNumber(entry.time) ? entry.time : time, counters: entry.counters ?? {}, latency: readLatency(entry.latency),
    recent: new Map(),
  }]));
  const silent = listOf(answer?.silent).filter((rank) => isNumber(rank) && !world.has(rank));
  // Workers of another world have the same ranks, but no common history.
  const id = answer?.id ?? latest.id;
  if (latest.id !== null && id !== latest.id) forgetHistory();
  const calls = listOf(answer?.calls).filter((call) => call).map(readCall);
  latest = {
    id, time, world, silent, calls, allCalls: answer?.all_calls > calls.length ? answer.all_calls : calls.length,
    pairs: listOf(answer?.pairs).filter((pair) => listOf(pair).length === 4 && pair.every(isNumber)),
    barriers: listOf(answer?.barriers), cycles: listOf(answer?.cycles), suspects: listOf(answer?.suspects), size: Math.max(world.size + silent.length, ...entries.map((entry) => entry.size || 0)),
    chains: listOf(answer?.chains).filter((chain) => isNumber(chain?.from)).map(readChain), moreChains: answer?.more_chains > 0 ? answer.more_chains : 0,
  };
  // A clock that was set back would reverse the lines.
  if (length > 0 && time < times[length - 1] - 1) forgetHistory();
  if (length === 0 || time > times[length - 1]) addPoint(time);
  const at = length - 1, ended = new Map();
  for (const metric of METRICS) totals.series[metric][at] = NaN;
  for (const [rank, entry] of world) {
    record(workerOf(rank), entry, at);
    for (const counts of entry.recent.values()) addCounts(ended, counts);
  }
  [totals.series.p50[at], totals.series.p99[at]] = [percentile(ended, 0.5), percentile(ended, 0.99)];
  for (const rank of silent) workerOf(rank);
  for (const [rank, worker] of workers) {
    if (world.has(rank)) continue;
    worker.before = null;
    // A departed worker is removed with its last point.
    if (!silent.includes(rank) && worker.series.out.every(Number.isNaN)) workers.delete(rank);
  }
}
function record(worker, entry, at) {
  const { counters, time } = entry, { before, series } = worker;
  worker.name = entry.name ? String(entry.name) : worker.name;
  const now = { out: counters.calls_out, in: counters.calls_in };
  if (before && before.process === entry.process && time === before.time) {
    // The same status as last time.
    entry.recent = before.recent;
    Object.assign(now, before.rates);
  } else {
    // Counters that are lower than before, or of another process, have restarted: there is no rate.
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
    const value = now[metric] ?? NaN, sum = totals.series[metric];
    series[metric][at] = value;
    // Percentiles do not add up: those of the totals come from all calls.
    if (isNumber(value) && !metric.startsWith("p")) sum[at] = isNumber(sum[at]) ? sum[at] + value : value;
  }
}
/** The latest value of a metric. */
const newest = (series, metric) => length > 0 ? series[metric][length - 1] : NaN;
