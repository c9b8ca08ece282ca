// ---------------------------------------------------------------- What all pages share

const byId = (id) => document.getElementById(id);
const isNumber = Number.isFinite;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Gives an element its attributes and children. Text only ever gets in as text nodes, so that no name can become markup. */
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, of] of Object.entries(value)) element.style.setProperty(property, of);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}
const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A number with three digits that count, and the largest of some units that it has one of. */
function scaled(value, units) {
  if (!isNumber(value)) return "–";
  const [unit, name] = units.find(([unit]) => value === 0 ? unit === 1 : Math.abs(value) >= unit * 0.9995) ?? units.at(-1);
  const part = value / unit, digits = Number.isInteger(value) && unit === 1 ? 0 : part < 9.995 ? 2 : part < 99.95 ? 1 : 0;
  return `${part.toFixed(digits)}${name === "" || name.startsWith("/") ? name : `\u00a0${name}`}`;
}
const bytes = (count) => scaled(count, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const grouped = (count) => isNumber(count) ? count.toLocaleString("en-US").replaceAll(",", "\u202f") : "–";
const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
/** Seconds for people. */
function span(seconds) {
  if (!(seconds >= 60)) return scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The first index in `low..high` of a sorted array whose value is not below `value`. */
function lowerBound(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** A row of buttons of which one is pressed. Gives a function that presses one without choosing it. */
function choice(group, options, chosen, choose) {
  const press = (value) => buttons.forEach((button, at) => button.setAttribute("aria-pressed", options[at][0] === value));
  const buttons = options.map(([value, label]) => el("button", { class: "button", "data-label": label, onclick() { press(value); choose(value); } }, label));
  press(chosen);
  group.append(...buttons);
  return press;
}

/** The colours of these names, as they are in the style sheet now, and the font. */
function coloursOf(names) {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, font: `11.5px ${getComputedStyle(document.body).fontFamily}` };
}
/** Does something whenever colours become light or dark. */
const onThemeChange = (change) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);

/** The pen of a canvas that has as many pixels as its place on the screen, wiped. */
function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** Paints with the next frame, once. */
const due = new Set();
function later(name, paint) {
  if (!due.has(name)) requestAnimationFrame(() => { due.delete(name); paint(); });
  due.add(name);
}

const tooltip = byId("tooltip");
/** Shows the tooltip beside a place of the window. */
function showTooltip(x, y, ...content) {
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${x + 16 + width > innerWidth ? Math.max(x - 12 - width, 4) : x + 16}px`;
  tooltip.style.top = `${y + 18 + height > innerHeight ? Math.max(y - 10 - height, 4) : y + 18}px`;
}

/** The names without what all of them begin with, where that leaves something of each; and what that is. */
function shortened(names) {
  let length = names.length > 1 ? Math.min(...names.map((name) => name.length - 1)) : 0;
  while (length > 0 && names.some((name) => !name.startsWith(names[0].slice(0, length)))) length--;
  // A number is not cut in two.
  while (length > 0 && /\d/.test(names[0][length - 1])) length--;
  return { common: length > 1 ? names[0].slice(0, length) : "", rest: names.map((name) => length > 1 ? name.slice(length) : name) };
}

/** More than so many are shown as a picture: numbers would not be readable. */
const MOST_IN_TABLE = 14;
/**
 * A picture of what goes on between pairs: a row for each that does something, a column for each it is done to, and bars for
 * the sums of both. `show` is given names, and for each pair where there is something: `{ row, column, part, weight, isBad }`, of
 * which `part` is how deep its colour is. `describe` says in words what a pair has, and `choose` is told when it is clicked.
 */
function heatMap(canvas, { describe, choose = null }) {
  const BAR = 46, GAP = 6, LARGEST = 34, WIDEST = 640;
  let names = [], short = [], pairs = [], cursor = null, theme = {}, place = null;
  const at = new Map(), key = (row, column) => row * names.length + column;

  function lay() {
    const pen = canvas.getContext("2d"), room = canvas.parentElement.clientWidth - 2;
    pen.font = theme.font;
    const widest = (texts) => Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width)));
    const left = clamp(widest(names), 74, 150) + 10, across = widest(short.rest) + 6;
    const size = clamp(Math.floor(Math.min(room - left - BAR - 2 * GAP, WIDEST) / Math.max(names.length, 1)), 5, LARGEST);
    const isUpright = across <= size + 2, top = (isUpright ? 16 : Math.min(across, 130)) + 6;
    // Where rows are lower than letters, some of them have no name.
    const every = Math.max(Math.ceil(9 / size), 1), span = size * names.length;
    place = { left, top, size, span, isUpright, every, width: left + span + GAP + BAR + 2, height: top + span + GAP + BAR + 2 };
    Object.assign(canvas.style, { width: `${place.width}px`, height: `${place.height}px` });
  }

  function paint() {
    if (canvas.parentElement.clientWidth === 0 || names.length === 0) return;
    lay();
    const { left, top, size, span, isUpright, every, width, height } = place, pen = penOf(canvas, width, height);
    const block = (colour, x, y, wide, high, alpha = 1) => { Object.assign(pen, { fillStyle: colour, globalAlpha: alpha }); pen.fillRect(x, y, wide, high); pen.globalAlpha = 1; };
    block(theme.band, left, top, span, span);
    if (cursor) {
      block(theme.tint, left, top + cursor.row * size, span, size);
      block(theme.tint, left + cursor.column * size, top, size, span);
    }
    for (let line = 0; line <= names.length; line += size < 9 ? 8 : 1) {
      block(theme.line, left + line * size - 0.5, top, 1, span, 0.7);
      block(theme.line, left, top + line * size - 0.5, span, 1, 0.7);
    }
    const inset = size > 7 ? 1 : 0.5, sums = [new Float64Array(names.length), new Float64Array(names.length)];
    for (const { row, column, part, weight, isBad } of pairs) {
      block(theme.surface, left + column * size + inset, top + row * size + inset, size - 2 * inset, size - 2 * inset);
      block(isBad ? theme.bad : theme.accent, left + column * size + inset, top + row * size + inset, size - 2 * inset, size - 2 * inset, 0.14 + 0.86 * clamp(part, 0, 1));
      sums[0][row] += weight;
      sums[1][column] += weight;
    }
    sums.forEach((values, side) => {
      const most = Math.max(...values) || 1;
      values.forEach((value, line) => {
        const long = value / most * BAR, from = (side === 0 ? top : left) + line * size + inset;
        if (side === 0) block(theme.muted, left + span + GAP, from, long, size - 2 * inset, 0.55);
        else block(theme.muted, from, top + span + GAP, size - 2 * inset, long, 0.55);
      });
    });
    const small = size < 14 ? theme.font.replace("11.5", "10") : theme.font;
    names.forEach((name, line) => {
      const middle = line * size + size / 2 + 0.5;
      const label = (text, isHere, x, y, align, turn, room) => {
        Object.assign(pen, { font: isHere ? `600 ${small}` : small, fillStyle: isHere ? theme.text : theme.muted, textBaseline: "middle", textAlign: align });
        pen.save();
        pen.translate(x, y);
        pen.rotate(turn);
        pen.fillText(text, 0, 0, room);
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

  /** Points at a pair, or at none. */
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
