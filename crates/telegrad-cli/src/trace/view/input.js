// Pointer and keys.

/** The event at a point of the canvas, with tolerance for narrow ones. */
function eventAt(x, y) {
  const height = y + scroller.scrollTop, lane = placed[lowerBound(placedAt, height + 1e-6) - 1];
  if (!lane || x < gutter || y < AXIS || height >= lane.y + LANE) return null;
  const at = toTime(x), slack = 3 * (view.end - view.start) / plotWidth();
  const distance = (event) => Math.max(event.start - at, at - event.end, 0);
  const first = lowerBound(lane.ends, at - slack);
  const near = lane.events.slice(first, first + 4).filter((event) => distance(event) <= slack);
  return near.sort((a, b) => distance(a) - distance(b))[0] ?? null;
}

function pointAt(event, x, y) {
  tooltip.hidden = event === null;
  if (!event) return;
  const facts = [time(duration(event)), `${event.kind} on ${nameOf(event.worker)}`, ...(event.bytes > 0 ? [bytes(event.bytes)] : [])];
  showTooltip(x, y, el("b", {}, labelOf(event)), facts.join(" · "), ...(isBad(event) ? [el("div", { class: "bad" }, event.status)] : []));
}

/** Describes the density at a point where rows are drawn as one. */
function densityAt(x, y) {
  const height = y + scroller.scrollTop, worker = x < gutter || y < AXIS ? undefined : workers.find((worker) => height >= worker.y && height < worker.bottom);
  const isWhole = worker?.isCollapsed ?? false;
  if (!worker || !isWhole && (worker.restY === null || height < worker.restY)) return null;
  const { all: { starts, ends, most } } = densitiesOf(worker, isWhole), at = toTime(x), pixel = (view.end - view.start) / plotWidth();
  const count = lowerBound(starts, at + pixel / 2) - lowerBound(ends, at - pixel / 2);
  return { worker, text: `${counted(count, "event")} at once here, ${grouped(most)} at most, in ${counted(isWhole ? worker.rows.length : worker.restCount, "row")}` };
}

canvas.addEventListener("pointerdown", ({ button, pointerId, offsetX, offsetY }) => {
  if (button !== 0 || offsetX < gutter) return;
  canvas.setPointerCapture(pointerId);
  drag = { x: offsetX, y: offsetY, start: view.start, end: view.end, scroll: scroller.scrollTop, hasMoved: false };
});

canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y, clientX, clientY }) => {
  pointerShare = clamp((x - gutter) / plotWidth(), 0, 1);
  if (drag) drag.hasMoved ||= Math.hypot(x - drag.x, y - drag.y) > 4;
  if (drag?.hasMoved) {
    const by = (x - drag.x) / plotWidth() * (drag.end - drag.start);
    moveTo(drag.start - by, drag.end - by, true);
    scroller.scrollTop = drag.scroll - (y - drag.y);
  }
  hovered = drag?.hasMoved ? null : eventAt(x, y);
  canvas.style.cursor = drag?.hasMoved ? "grabbing" : hovered ? "pointer" : "grab";
  pointAt(hovered, clientX, clientY);
  const density = hovered || drag?.hasMoved ? null : densityAt(x, y);
  if (density) showTooltip(clientX, clientY, el("b", {}, density.worker.name), density.text);
  redraw();
});

canvas.addEventListener("pointerup", ({ offsetX, offsetY }) => {
  if (drag && !drag.hasMoved) select(eventAt(offsetX, offsetY));
  drag = null;
});
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointerleave", () => { pointerShare = 0.5; hovered = null; tooltip.hidden = true; redraw(); });
canvas.addEventListener("dblclick", () => { if (selected) zoomTo(selected); });

canvas.addEventListener("wheel", (wheel) => {
  wheel.preventDefault();
  const unit = [1, 18, 400][wheel.deltaMode];
  const dx = wheel.deltaX * unit, dy = wheel.deltaY * unit;
  if (wheel.shiftKey) scroller.scrollTop += dx + dy;
  else if (Math.abs(dx) > Math.abs(dy)) pan(dx / plotWidth(), true);
  else zoom(Math.exp(clamp(dy, -300, 300) * (wheel.ctrlKey ? 0.01 : 0.002)), clamp((wheel.offsetX - gutter) / plotWidth(), 0, 1), true);
}, { passive: false });

scroller.addEventListener("scroll", redraw);

function moveByOverview({ buttons, pointerId, offsetX }) {
  if (buttons !== 1) return;
  overview.setPointerCapture(pointerId);
  const middle = whole.start + offsetX / overview.clientWidth * (whole.end - whole.start);
  const half = (view.end - view.start) / 2;
  moveTo(middle - half, middle + half, true);
}
overview.addEventListener("pointerdown", moveByOverview);
overview.addEventListener("pointermove", moveByOverview);

/** Moves the selection to a neighbour in the lane, or to the lane above or below. */
function selectBeside(key) {
  const { lane, slot, start } = selected ?? {};
  const within = (depth) => { const other = lane.row.lanes[depth]; return other?.events[lowerBound(other.ends, start + duration(selected) * 1e-6)]; };
  const next = !selected ? events.find((event) => event.end >= view.start)
    : key === "ArrowLeft" ? lane.events[slot - 1] : key === "ArrowRight" ? lane.events[slot + 1]
    : within(lane.depth + (key === "ArrowUp" ? -1 : 1));
  if (next) select(next, true);
}

const actions = {
  w: () => zoom(0.7, pointerShare), s: () => zoom(1 / 0.7, pointerShare), a: () => pan(-0.18), d: () => pan(0.18), 0: showAll,
  f: () => selected && zoomTo(selected), c: toggleCritical, x: fold, "/": () => byId("search").focus(), Escape: () => select(null),
};
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey || byId("panel-timeline").hidden || press.target.matches("input, select, [role=tab]")) return;
  const isArrow = press.target === canvas && press.key.startsWith("Arrow");
  const action = isArrow ? () => selectBeside(press.key) : actions[press.key.length === 1 ? press.key.toLowerCase() : press.key];
  if (!action) return;
  press.preventDefault();
  action();
});

byId("search").addEventListener("input", () => later("filter", refilter));
byId("search").addEventListener("keydown", ({ key, shiftKey }) => { if (key === "Enter") selectMatch(shiftKey ? -1 : 1); });
const onClick = {
  previous: () => selectMatch(-1), next: () => selectMatch(1), "chip-clear": () => setHighlight(null), "show-critical": toggleCritical,
  fold, "zoom-in": () => zoom(0.6), "zoom-out": () => zoom(1 / 0.6), everything: showAll,
};
for (const [id, action] of Object.entries(onClick)) byId(id).addEventListener("click", action);
