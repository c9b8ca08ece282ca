// Paints the events of a lane, and the density of rows without lanes.

/**
 * Paints the events of a lane in a time range, and returns their number. Narrow events are merged by pixel without visiting
 * each: the work is bounded by the width, not by the number of events.
 */
function paintLane(pen, lane, shown, left, width, y, height) {
  const { starts, ends } = lane;
  const perPixel = (shown.end - shown.start) / width;
  const x = (at) => left + (at - shown.start) / perPixel;
  const isWide = (at) => ends[at] - starts[at] >= MERGE_BELOW * perPixel;
  const first = lowerBound(ends, shown.start), stop = lowerBound(starts, shown.end);
  let run = null;
  const flush = () => { if (run) block(pen, run.colour, run.from, y, run.to - run.from, height, run.alpha); run = null; };
  for (let at = first; at < stop;) {
    if (isWide(at)) {
      flush();
      paintBox(pen, lane.events[at], Math.max(x(starts[at]), left - 8), Math.min(x(ends[at]), left + width + 8), y, height, left);
      at++;
      continue;
    }
    // All events that start in the pixel. Pixels are counted from time zero, so that they are stable while panning.
    const pixel = Math.floor(starts[at] / perPixel);
    let end = lowerBound(starts, (pixel + 1) * perPixel, at + 1, stop);
    if (end - 1 > at && isWide(end - 1)) end--;
    const isDim = standsOut !== null && lane.matched[end] === lane.matched[at];
    const fails = lane.failed[end] > lane.failed[at];
    const cover = Math.min(Math.ceil((lane.spent[end] - lane.spent[at]) / perPixel * 4) / 4, 1);
    const alpha = (isDim ? DIM : 1) * (fails ? 1 : 0.4 + 0.35 * cover);
    const colour = fails ? theme.kinds.failed.edge : styleOf(lane.events[at]).edge;
    const from = Math.round(x(pixel * perPixel)), to = from + (fails ? 2 : 1);
    if (run && run.colour === colour && run.alpha === alpha && from <= run.to) run.to = to;
    else { flush(); run = { from, to, colour, alpha }; }
    at = end;
  }
  flush();
  return stop - first;
}

/** Paints an event as a box, with its name from the start of the box or of the plot. */
function paintBox(pen, event, from, to, y, height, left) {
  const style = styleOf(event);
  const isDim = standsOut !== null && !standsOut[event.index];
  const width = Math.max(to - from - 0.5, 1);
  if (width < 6 || height < BOX) {
    block(pen, style.edge, from, y, width, height, isDim ? DIM : 0.75);
    return;
  }
  pen.globalAlpha = isDim ? DIM : 1;
  pen.beginPath();
  pen.roundRect(from + 0.5, y + 0.5, width - 1, height - 1, 3);
  for (const fill of isBad(event) ? [style.fill, theme.hatch] : [style.fill]) { pen.fillStyle = fill; pen.fill(); }
  Object.assign(pen, { lineWidth: 1, strokeStyle: style.edge });
  pen.setLineDash(event.kind === "wait" ? [3, 2] : []);
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  const textFrom = Math.max(from, left) + 5;
  const text = isDim ? "" : fitted(pen, labelOf(event, shortOf(event)), to - textFrom - 4);
  if (text === "") return;
  // A plain background keeps the text legible over the hatching.
  if (isBad(event)) block(pen, style.fill, textFrom - 2, y + 2, Math.min(pen.measureText(text).width + 4, to - textFrom), height - 4);
  pen.fillStyle = theme.text;
  pen.fillText(text, textFrom, y + height / 2 + 0.5);
}

/** Paints the density as an area, or as a shade in low rows; events that are not emphasised are paler. */
function paintDensity(pen, { all, found, failures }, shown, left, width, y, height) {
  if (all.starts.length === 0) return;
  const counts = densityIn(all, shown, width), most = counts.reduce((most, count) => Math.max(most, count), 1e-9);
  pen.fillStyle = theme.accent;
  for (const [values, alpha] of [[counts, found ? 0.2 : 0.6], [found && densityIn(found, shown, width), 0.9]]) {
    if (!values) continue;
    pen.beginPath();
    pen.moveTo(left, y + height);
    values.forEach((count, pixel) => {
      const share = count / most, isSome = count > 1e-9;
      if (height < 5) {
        pen.globalAlpha = alpha * Math.min(0.25 + share, 1);
        if (isSome) pen.fillRect(left + pixel, y, 1, height);
        return;
      }
      // At least one visible pixel.
      const top = y + height - (isSome ? Math.max(share * height, 1) : 0);
      pen.lineTo(left + pixel, top);
      pen.lineTo(left + pixel + 1, top);
    });
    pen.lineTo(left + width, y + height);
    pen.globalAlpha = alpha;
    if (height >= 5) pen.fill();
  }
  pen.globalAlpha = 1;
  // Failures are visible at any density.
  const perPixel = (shown.end - shown.start) / width;
  for (let at = lowerBound(failures, shown.start); failures[at] < shown.end;) {
    const pixel = Math.floor((failures[at] - shown.start) / perPixel);
    block(pen, theme.kinds.failed.edge, left + pixel, y, 2, height);
    at = lowerBound(failures, shown.start + (pixel + 1) * perPixel, at + 1);
  }
}

/** A cache of text widths, which are slow to measure. */
const textWidths = new Map();
function widthOf(pen, text) {
  if (!textWidths.has(text)) {
    if (textWidths.size > 20000) textWidths.clear();
    textWidths.set(text, pen.measureText(text).width);
  }
  return textWidths.get(text);
}
/** Truncates a text to a width. */
function fitted(pen, text, space) {
  if (space < 12) return "";
  const width = widthOf(pen, text);
  if (width <= space) return text;
  // Letters differ in width, so the estimate is checked.
  for (let letters = Math.floor(text.length * space / width); letters > 1; letters--) {
    const cut = `${text.slice(0, letters)}…`;
    if (widthOf(pen, cut) <= space) return cut;
  }
  return "";
}
