// A heat map of values per pair of workers.

/** With more workers, a heat map replaces the table, whose numbers would be unreadable. */
const MOST_IN_TABLE = 14;
/**
 * A heat map with a row per source, a column per target, and bars for the sums of both. `show` takes names, and for each pair with a
 * value `{ row, column, part, weight, isBad }`, where `part` is the depth of its colour. `describe` returns the text of a pair, and
 * `choose` is called when a pair is clicked.
 */
function heatMap(canvas, { describe, choose = null }) {
  const BAR = 46, GAP = 6, LARGEST = 34, WIDEST = 640;
  let names = [], short = [], pairs = [], cursor = null, theme = {}, place = null;
  const at = new Map(), key = (row, column) => row * names.length + column;

  function lay() {
    const pen = canvas.getContext("2d"), space = canvas.parentElement.clientWidth - 2;
    pen.font = theme.font;
    const widest = (texts) => Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width)));
    const left = clamp(widest(names), 74, 150) + 10, across = widest(short.rest) + 6;
    const size = clamp(Math.floor(Math.min(space - left - BAR - 2 * GAP, WIDEST) / Math.max(names.length, 1)), 5, LARGEST);
    const isUpright = across <= size + 2, top = (isUpright ? 16 : Math.min(across, 130)) + 6;
    // If rows are lower than letters, only some have a name.
    const every = Math.max(Math.ceil(9 / size), 1), span = size * names.length;
    place = { left, top, size, span, isUpright, every, width: left + span + GAP + BAR + 2, height: top + span + GAP + BAR + 2 };
    Object.assign(canvas.style, { width: `${place.width}px`, height: `${place.height}px` });
  }

  function paint() {
    if (canvas.parentElement.clientWidth === 0 || names.length === 0) return;
    lay();
    const { left, top, size, span, isUpright, every, width, height } = place, pen = penOf(canvas, width, height);
    block(pen, theme.band, left, top, span, span);
    if (cursor) {
      block(pen, theme.tint, left, top + cursor.row * size, span, size);
      block(pen, theme.tint, left + cursor.column * size, top, size, span);
    }
    for (let line = 0; line <= names.length; line += size < 9 ? 8 : 1) {
      block(pen, theme.line, left + line * size - 0.5, top, 1, span, 0.7);
      block(pen, theme.line, left, top + line * size - 0.5, span, 1, 0.7);
    }
    const inset = size > 7 ? 1 : 0.5, sums = [new Float64Array(names.length), new Float64Array(names.length)];
    for (const { row, column, part, weight, isBad } of pairs) {
      block(pen, theme.surface, left + column * size + inset, top + row * size + inset, size - 2 * inset, size - 2 * inset);
      block(pen, isBad ? theme.bad : theme.accent, left + column * size + inset, top + row * size + inset, size - 2 * inset, size - 2 * inset, 0.14 + 0.86 * clamp(part, 0, 1));
      sums[0][row] += weight;
      sums[1][column] += weight;
    }
    sums.forEach((values, side) => {
      const most = Math.max(...values) || 1;
      values.forEach((value, line) => {
        const long = value / most * BAR, from = (side === 0 ? top : left) + line * size + inset;
        if (side === 0) block(pen, theme.muted, left + span + GAP, from, long, size - 2 * inset, 0.55);
        else block(pen, theme.muted, from, top + span + GAP, size - 2 * inset, long, 0.55);
      });
    });
    const small = size < 14 ? theme.font.replace("11.5", "10") : theme.font;
    names.forEach((name, line) => {
      const middle = line * size + size / 2 + 0.5;
      const label = (text, isHere, x, y, align, turn, space) => {
        Object.assign(pen, { font: isHere ? `600 ${small}` : small, fillStyle: isHere ? theme.text : theme.muted, textBaseline: "middle", textAlign: align });
        pen.save();
        pen.translate(x, y);
        pen.rotate(turn);
        pen.fillText(text, 0, 0, space);
        pen.restore();
      };
      const hasName = line % every === 0;
      if (hasName || cursor?.row === line) label(name, cursor?.row === line, left - 6, top + middle, "right", 0, 150);
      if (hasName || cursor?.column === line) {
        if (isUpright) label(short.rest[line], cursor?.column === line, left + middle, top - 9, "center", 0, size + 3);
        else label(short.rest[line], cursor?.column === line, left + middle, top - 5, "left", -Math.PI / 2, 130);
      }
    });
    Object.assign(pen, { font: theme.font, fillStyle: theme.muted, textAlign: "right", textBaseline: "alphabetic" });
    pen.fillText("from ↓ to →", left - 6, top - 5);
    if (cursor) {
      Object.assign(pen, { strokeStyle: theme.text, lineWidth: 1.5 });
      pen.strokeRect(left + cursor.column * size, top + cursor.row * size, size, size);
    }
    canvas.dataset.cells = pairs.length;
    canvas.dataset.workers = names.length;
  }

  /** Moves the cursor to a pair, or removes it. */
  function point(row, column, x, y) {
    const isIn = row >= 0 && column >= 0 && row < names.length && column < names.length;
    if (cursor?.row !== row || cursor?.column !== column || !isIn) later(canvas.id, paint);
    cursor = isIn ? { row, column } : null;
    tooltip.hidden = !isIn;
    if (isIn) showTooltip(x, y, el("b", {}, `${names[row]} → ${names[column]}`), describe(at.get(key(row, column)) ?? null));
  }
  canvas.addEventListener("pointermove", ({ offsetX, offsetY, clientX, clientY }) => {
    if (place) point(Math.floor((offsetY - place.top) / place.size), Math.floor((offsetX - place.left) / place.size), clientX, clientY);
  });
  for (const kind of ["pointerleave", "blur"]) canvas.addEventListener(kind, () => point(-1, -1));
  canvas.addEventListener("click", () => { const pair = cursor && at.get(key(cursor.row, cursor.column)); if (pair) choose?.(pair); });
  canvas.addEventListener("keydown", (press) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[press.key] ?? [];
    if (press.key === "Escape") point(-1, -1);
    if (press.key === "Enter") canvas.click();
    if (down === undefined || !place) return;
    press.preventDefault();
    const last = names.length - 1, row = clamp((cursor?.row ?? -down) + down, 0, last), column = clamp((cursor?.column ?? -right) + right, 0, last);
    const box = canvas.getBoundingClientRect();
    point(row, column, box.left + place.left + (column + 1) * place.size, box.top + place.top + (row + 1) * place.size);
    byId("announce").textContent = `${names[row]} to ${names[column]}: ${describe(at.get(key(row, column)) ?? null)}`;
  });

  const restyle = () => { theme = coloursOf(["surface", "band", "line", "text", "muted", "accent", "tint", "bad"]); later(canvas.id, paint); };
  onThemeChange(restyle);
  new ResizeObserver(() => later(canvas.id, paint)).observe(canvas.parentElement);
  restyle();
  return {
    show(shown, content) {
      [names, short] = [shown, shortened(shown)];
      pairs = content;
      at.clear();
      for (const pair of pairs) at.set(key(pair.row, pair.column), pair);
      if (cursor && Math.max(cursor.row, cursor.column) >= names.length) cursor = null;
      later(canvas.id, paint);
    },
  };
}
