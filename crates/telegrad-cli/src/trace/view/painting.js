// Paints the timeline: visible events, the axis, the critical path, arrows, and the overview.

function draw() {
  const { width, height, ratio } = size;
  const scroll = scroller.scrollTop;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  Object.assign(pen, { font: theme.font, textBaseline: "middle" });
  block(pen, theme.surface, 0, 0, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(gutter, 0, plotWidth(), height);
  pen.clip();
  const axis = axisTicks(view, plotWidth());
  for (const { at } of axis.ticks) block(pen, theme.line, Math.round(toX(at)), AXIS, 1, height, 0.6);
  let painted = 0;
  const paint = (lane, y, high) => { if (y < height && y + high > AXIS) painted += paintLane(pen, lane, view, gutter, plotWidth(), y, high); };
  const density = (densities, y, high) => { painted += densities.all.starts.length; paintDensity(pen, densities, view, gutter, plotWidth(), y, high); };
  const inSight = [];
  for (const worker of workers) {
    const y = worker.y - scroll;
    if (y > height || worker.bottom - scroll < AXIS) continue;
    block(pen, theme.band, gutter, y, plotWidth(), HEADER);
    pen.fillStyle = theme.muted;
    if (!worker.isCollapsed || !worker.isKnown) pen.fillText(lackOf(worker).join(", "), gutter + 8, y + HEADER / 2);
    if (worker.isCollapsed) {
      density(densitiesOf(worker, true), y + 4, HEADER - 7);
      continue;
    }
    for (let at = Math.max(lowerBound(worker.shownAt, scroll + AXIS) - 1, 0); at < worker.shown.length && worker.shown[at].y - scroll < height; at++) {
      const row = worker.shown[at];
      inSight.push(row);
      block(pen, theme.line, gutter, row.y - scroll, plotWidth(), 1);
      const above = Math.max(Math.floor((scroll + AXIS - row.y) / LANE) - 1, 0), below = Math.ceil((scroll + height - row.y) / LANE);
      for (const lane of row.lanes.slice(above, Math.min(below, row.depth))) paint(lane, lane.y - scroll, BOX);
    }
    if (worker.restY !== null && worker.restY - scroll < height) {
      block(pen, theme.line, gutter, worker.restY - scroll, plotWidth(), 1);
      density(densitiesOf(worker, false), worker.restY - scroll + 6, REST - 10);
    }
  }
  labelRows(inSight);
  if (events.length === 0) {
    pen.fillStyle = theme.muted;
    pen.fillText("No events were recorded.", gutter + 24, Math.max(AXIS, ...workers.map((worker) => worker.bottom)) + 26);
  }
  if (showsCritical) paintCritical();
  if (hovered) outline(hovered, theme.muted, 1.5);
  if (selected) {
    outline(selected, theme.text, 2);
    arrowsOf(selected).forEach(paintArrow);
  }
  paintAxis(axis);
  pen.restore();
  paintOverview();
  const inView = ({ start, end }) => end >= view.start && start <= view.end;
  const critical = showsCritical ? new Set(criticalPieces.filter(inView).map(({ event }) => event)).size : 0;
  Object.assign(document.body.dataset, { events: painted, rows: inSight.length, critical, from: view.start, to: view.end });
}

function paintAxis({ ticks, distance }) {
  block(pen, theme.surface, gutter, 0, plotWidth(), AXIS);
  block(pen, theme.line, gutter, AXIS - 1, plotWidth(), 1);
  for (let minor = Math.ceil(view.start / distance * 5); minor * distance / 5 <= view.end; minor++) {
    block(pen, theme.line, Math.round(toX(minor * distance / 5)), AXIS - 5, 1, 4);
  }
  for (const { at, text } of ticks) {
    block(pen, theme.muted, Math.round(toX(at)), AXIS - 9, 1, 8);
    const from = Math.round(toX(at)) + 5;
    // A truncated number would be wrong.
    if (from + widthOf(pen, text) <= size.width) pen.fillText(text, from, 13);
  }
}

function outline(event, colour, thickness) {
  if (!event.lane.isPlaced) return;
  const from = Math.max(toX(event.start), gutter - 8), to = Math.min(toX(event.end), size.width + 8);
  Object.assign(pen, { strokeStyle: colour, lineWidth: thickness });
  pen.beginPath();
  pen.roundRect(from - 0.5, event.lane.y - scroller.scrollTop - 0.5, Math.max(to - from, 3) + 0.5, BOX + 1, 3.5);
  pen.stroke();
}

/** The critical path: a bar under each piece, and lines between pieces. */
function paintCritical() {
  const lines = new Path2D();
  const seen = criticalPieces.filter(({ start, end }) => end >= view.start && start <= view.end);
  // Too many lines would hide the events.
  const hasLines = seen.length < plotWidth() / 5;
  let last = null;
  for (const { event, start, end } of seen) {
    const from = toX(start), to = Math.max(toX(end), from + 1), y = middleOf(event) + (event.lane.isPlaced ? BOX / 2 : 8);
    // The same pixel of the same lane is painted already.
    if (!(last?.y === y && Math.floor(to) === Math.floor(last.to))) block(pen, theme.critical, from, y - 2, to - from, 4);
    if (hasLines && last && last.y !== y) { lines.moveTo(from, last.y); lines.lineTo(from, y); }
    last = { y, to };
  }
  Object.assign(pen, { strokeStyle: theme.critical, lineWidth: 1.5 });
  pen.stroke(lines);
}

/** The arrows of an event: between a call and its execution, and along its links. */
function arrowsOf(event) {
  const arrows = [];
  const call = event.kind === "execution" && event.parent?.kind === "call" ? event.parent : event;
  const executions = childrenOf(call).filter((child) => call.kind === "call" && child.kind === "execution");
  for (const execution of executions) {
    const sent = call.start + Math.min(call.phases?.encode ?? 0, duration(call));
    arrows.push({ from: call, fromTime: sent, to: execution, toTime: execution.start, colour: theme.kinds.call.edge, dash: [] });
    arrows.push({ from: execution, fromTime: execution.end, to: call, toTime: call.end, colour: theme.kinds.execution.edge, dash: [5, 4] });
  }
  const linked = profile.eventsByLink.get(event.link) ?? [];
  linked.slice(1).forEach((to, at) => {
    arrows.push({ from: linked[at], fromTime: Math.min(linked[at].end, to.start), to, toTime: to.start, colour: theme.kinds.autograd.edge, dash: [] });
  });
  return arrows;
}

function paintArrow({ from, fromTime, to, toTime, colour, dash }) {
  const [x1, y1, x2, y2] = [toX(fromTime), middleOf(from), toX(toTime), middleOf(to)];
  const bend = clamp(Math.abs(x2 - x1) / 2, 16, 160);
  const lift = y1 === y2 ? -26 : 0;
  const curve = new Path2D();
  curve.moveTo(x1, y1);
  curve.bezierCurveTo(x1 + bend, y1 + lift, x2 - bend, y2 + lift, x2, y2);
  Object.assign(pen, { strokeStyle: colour, fillStyle: colour, lineWidth: 2 });
  pen.setLineDash(dash);
  pen.stroke(curve);
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(x1, y1, 3, 0, 7);
  pen.fill();
  pen.save();
  pen.translate(x2, y2);
  pen.rotate(Math.atan2(-lift, bend));
  pen.fill(new Path2D("M2 0L-8 -5V5z"));
  pen.restore();
}

/** The overview of the whole profile, with the visible range. The overview is repainted only when it changes. */
let overviewImage = null;
function paintOverview() {
  const { ratio } = size, width = overview.clientWidth || 1000, height = 38;
  if (!overviewImage) {
    overviewImage = Object.assign(document.createElement("canvas"), { width: width * ratio, height: height * ratio });
    Object.assign(overview, { width: width * ratio, height: height * ratio });
    const brush = overviewImage.getContext("2d");
    brush.scale(ratio, ratio);
    const rows = lanes.filter((lane) => lane.depth === 0);
    const high = Math.min((height - 10) / Math.max(rows.length, 1), 8);
    if (high >= 1) rows.forEach((lane, number) => paintLane(brush, lane, whole, 0, width, 5 + number * high, Math.max(high > 2.5 ? high - 1 : high, 0.5)));
    else {
      const each = (height - 8) / workers.length;
      workers.forEach((worker, number) => paintDensity(brush, densitiesOf(worker, true), whole, 0, width, 4 + number * each, each > 2 ? each - 1 : each));
    }
  }
  const small = overview.getContext("2d");
  small.setTransform(1, 0, 0, 1, 0, 0);
  block(small, theme.surface, 0, 0, overview.width, overview.height);
  small.drawImage(overviewImage, 0, 0);
  small.scale(ratio, ratio);
  const [from, to] = [view.start, view.end].map((at) => (at - whole.start) / (whole.end - whole.start) * width);
  block(small, theme.surface, 0, 0, from, height, 0.7);
  block(small, theme.surface, to, 0, width - to, height, 0.7);
  Object.assign(small, { strokeStyle: theme.accent, lineWidth: 2 });
  if (to - from < width - 1) small.strokeRect(from + 1, 1, Math.max(to - from - 2, 1), height - 2);
}

const redraw = () => later("draw", draw);

function measure() {
  size = { width: scroller.clientWidth || size.width, height: scroller.clientHeight || size.height, ratio: window.devicePixelRatio || 1 };
  gutter = byId("labels").offsetWidth || gutter;
  canvas.style.height = `${size.height}px`;
  Object.assign(canvas, { width: Math.round(size.width * size.ratio), height: Math.round(size.height * size.ratio) });
  overviewImage = null;
}
