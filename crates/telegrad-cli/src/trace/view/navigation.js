// Moves the visible range of the timeline.

/** Shows a range of the profile, at once or animated. */
function moveTo(start, end, isAtOnce = prefersCalm.matches) {
  const span = clamp(end - start, SHORTEST_VIEW, whole.end - whole.start);
  const from = clamp((start + end - span) / 2, whole.start, whole.end - span);
  const wasMoving = goal.start !== view.start || goal.end !== view.end;
  goal = { start: from, end: from + span };
  if (isAtOnce) { view = { ...goal }; redraw(); } else if (!wasMoving) requestAnimationFrame(approach);
}

function approach() {
  const near = (goal.end - goal.start) / 2000;
  view = { start: view.start + (goal.start - view.start) * 0.35, end: view.end + (goal.end - view.end) * 0.35 };
  const isThere = Math.abs(view.start - goal.start) < near && Math.abs(view.end - goal.end) < near;
  if (isThere) view = { ...goal }; else requestAnimationFrame(approach);
  redraw();
}

function zoom(factor, around = 0.5, isAtOnce = prefersCalm.matches) {
  const span = goal.end - goal.start;
  const wanted = clamp(span * factor, SHORTEST_VIEW, whole.end - whole.start);
  const start = goal.start + (span - wanted) * around;
  moveTo(start, start + wanted, isAtOnce);
}

const pan = (share, isAtOnce) => { const by = (goal.end - goal.start) * share; moveTo(goal.start + by, goal.end + by, isAtOnce); };
const showAll = () => moveTo(whole.start, whole.end);
function zoomTo(event, isAtOnce) {
  const space = Math.max(duration(event) * 0.6, SHORTEST_VIEW);
  moveTo(event.start - space, event.end + space, isAtOnce);
}

/** Scrolls an event into view by the least amount. */
function reveal(event, isAtOnce) {
  if (!event.lane.isPlaced) {
    event.lane.worker.isCollapsed = false;
    event.lane.row.isPinned = true;
    layOut();
  }
  const width = duration(event) / (goal.end - goal.start) * plotWidth();
  if (event.end < goal.start || event.start > goal.end || width < 24) zoomTo(event, isAtOnce);
  const top = event.lane.y - AXIS - 40, bottom = event.lane.y + LANE + 40 - size.height;
  if (scroller.scrollTop > top || scroller.scrollTop < bottom) scroller.scrollTop = scroller.scrollTop > top ? top : bottom;
}
