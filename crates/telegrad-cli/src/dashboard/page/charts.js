// The charts: values of all workers over time.

const LEFT = 62, BOTTOM = 20, TOP = 8, RIGHT = 6;
/** Up to FEW workers are drawn separately in each chart; of more, the BUSIEST, and the others as one. */
const FEW = 8, BUSIEST = 6;
let range = 300, isStacked = null, drawsAll = false, emphasised = null;
/** The position of the pointer or the arrow keys: chart, index of the point, and height. */
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
  chart.legend = el("div", { class: "legend", role: "group", "aria-label": `${chart.title}: workers. Press one to emphasise it.` });
  const kinds = el("div", { class: "choice push", role: "group", "aria-label": `${chart.title}: metric` });
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

/** Chooses the workers to draw separately, and their colours. A drawn worker stays until others are much busier. */
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
/** The colour with the fewest uses in all charts. A worker has the same colour in all charts if possible. */
function rarestHue() {
  const drawn = new Set(charts.flatMap((chart) => chart.drawn)), uses = new Array(HUES).fill(0);
  for (const worker of workers.values()) if (drawn.has(worker) && worker.hue !== undefined) uses[worker.hue]++;
  return uses.indexOf(Math.min(...uses));
}
/** The dash pattern of a worker's line: by colour, different each time the colours repeat. */
const dashOf = (chart, worker) => DASHES[(chart.hues.get(worker) + (chart.drawn.length > HUES ? Math.floor(worker.rank / HUES) : 0)) % DASHES.length];
const colourOf = (chart, worker) => theme.hues[chart.hues.get(worker)];
const othersName = (chart) => `${chart.others.length} others`;
/** The values at a point in time, the largest first: single workers, and the others as one. */
function partsAt(chart, at) {
  const parts = chart.drawn.map((worker) => ({ worker, name: worker.name, value: worker.series[chart.metric][at] })).filter(({ value }) => isNumber(value)).sort((a, b) => b.value - a.value);
  const rest = othersAt(chart, at);
  return isNumber(rest) ? [...parts, { worker: null, name: othersName(chart), value: rest }] : parts;
}
/** The sum of the workers that are not drawn separately. */
function othersAt(chart, at) {
  if (chart.others.length === 0 || !isNumber(totals.series[chart.metric][at])) return NaN;
  return chart.others.reduce((sum, { series }) => sum + (series[chart.metric][at] || 0), 0);
}

/** The distance between the lines of an axis: a round number that gives few lines. */
function stepOf(most, isWhole) {
  const power = 10 ** Math.floor(Math.log10(most / 3)), step = power * ([1, 2, 2.5, 5].find((factor) => factor * power >= most / 4) ?? 10);
  return isWhole ? Math.max(Math.ceil(step), 1) : step;
}
/** Formats a number of an axis without trailing zeros. */
const rounded = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const stacks = () => isStacked ?? workers.size > FEW;

function paintChart(chart) {
  const width = chart.plot.clientWidth, height = chart.plot.clientHeight;
  if (width < LEFT + 20) return;
  const pen = penOf(chart.lines, width, height), { start, end, from } = recent(range, 30);
  pick(chart, from);
  const highest = (series) => { let most = 0; for (let at = from; at < length; at++) if (series[chart.metric][at] > most) most = series[chart.metric][at]; return most; };
  const most = stacks() ? highest(totals.series) : Math.max(0, ...[...workers.values()].map(({ series }) => highest(series)));
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
  if (!totals.series[chart.metric].subarray(from, length).some(isNumber)) {
    pen.textAlign = "center";
    pen.fillText("no data yet", (width + LEFT) / 2, height / 2);
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT, height);
  pen.clip();
  Object.assign(pen, { lineJoin: "round", lineCap: "butt" });
  const points = (stacks() ? paintStack : paintLines)(pen, chart, from);
  pen.restore();
  const total = newest(totals.series, chart.metric);
  write(chart.now, chart.format(total));
  chart.lines.setAttribute("aria-label", `${chart.title}, ${chart.kinds.find(([kind]) => kind === chart.metric)[1]}, by worker. Now ${chart.format(total)} in all. The arrow keys move in time.`);
  chart.card.dataset.drawn = chart.drawn.length;
  chart.card.dataset.others = chart.others.length;
  chart.card.dataset.points = points;
  showLegend(chart);
}
/** Draws a line per worker; the others lie within a grey band. Returns the number of points drawn. */
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
/** Draws stacked areas, whose total height is the sum of all. Returns the number of points of that sum. */
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
  return trace(pen, totals.series[metric], from, chart.toX, chart.toY);
}
/** The ranges `[first, stop]` without gaps, from a point on. */
function stretches(metric, from) {
  const found = [], known = totals.series[metric];
  for (let at = from; at < length; at++) {
    if (!isNumber(known[at])) continue;
    if (at > from && isNumber(known[at - 1]) && !isAfterGap(at)) found.at(-1)[1] = at + 1; else found.push([at, at + 1]);
  }
  return found;
}
/** The area between two lines that start at the point `first`. */
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
    const dots = stacks() ? [[theme.text, totals.series[chart.metric][cursor.at]]] : chart.drawn.map((worker) => [colourOf(chart, worker), worker.series[chart.metric][cursor.at]]);
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
  const sum = totals.series[chart.metric][at];
  const row = (name, value, ...key) => el("tr", {}, el("th", {}, ...key, name), el("td", { class: "number" }, chart.format(value)));
  const rows = some.map(({ worker, name, value }) => row(name, value, keyOf(chart, worker)));
  if (isNumber(sum) && parts.length > 1) rows.push(el("tr", { class: "sum" }, el("th", {}, "total"), el("td", { class: "number" }, chart.format(sum))));
  showTooltip(box.left + chart.toX(times[at]), box.top + y, el("b", {}, clock(times[at])), el("table", {}, el("tbody", {}, rows)),
    ...(rest > 0 ? [el("span", { class: "muted" }, `and ${rest} more`)] : []), ...(parts.length === 0 ? [el("div", { class: "muted" }, "no data")] : []));
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

/** A sample of the style of a worker, or of the others. */
function keyOf(chart, worker) {
  const colour = worker ? `var(--hue-${chart.hues.get(worker)})` : "var(--muted)";
  const key = stacks() || !worker ? svg("rect", { x: 1, y: 0, width: 12, height: 10, rx: 2, fill: colour, "fill-opacity": worker ? 0.78 : 0.4 })
    : svg("path", { d: "M1 5H23", "stroke-width": 2.4, stroke: colour, "stroke-dasharray": dashOf(chart, worker).join(" ") });
  return svg("svg", { width: stacks() ? 14 : 24, height: 10, "aria-hidden": "true" }, key);
}
/** Toggles the emphasis of a worker in the charts. */
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
/** The legend of a chart, with current values. */
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
