// Shared by all charts: colours, lines, and the visible range of the history.

let theme = {};
function readTheme() {
  const hues = [...Array(HUES).keys()].map((hue) => `hue-${hue}`);
  theme = coloursOf(["surface", "line", "text", "muted", "accent", "second", ...hues]);
  theme.hues = hues.map((name) => theme[name]);
}
/**
 * Draws `values` from a point on: at most the minimum and maximum of each pixel column, with gaps for missing values.
 * Returns the number of points drawn.
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
/** The range of the history in the last seconds. */
function recent(seconds, least) {
  const end = length > 0 ? times[length - 1] : 0, first = length > 0 ? times[0] : 0;
  const start = Math.max(end - seconds, Math.min(first, end - least));
  return { start, end, from: Math.max(lowerBound(times, start, 0, length) - 1, 0) };
}
