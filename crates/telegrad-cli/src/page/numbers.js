// Formatting of numbers, and other functions that need no page.

const isNumber = Number.isFinite;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Formats a number with three significant digits in the largest unit below it. */
function scaled(value, units) {
  if (!isNumber(value)) return "–";
  const [unit, name] = units.find(([unit]) => value === 0 ? unit === 1 : Math.abs(value) >= unit * 0.9995) ?? units.at(-1);
  const part = value / unit, digits = Number.isInteger(value) && unit === 1 ? 0 : part < 9.995 ? 2 : part < 99.95 ? 1 : 0;
  return `${part.toFixed(digits)}${name === "" || name.startsWith("/") ? name : `\u00a0${name}`}`;
}
const bytes = (count) => scaled(count, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const grouped = (count) => isNumber(count) ? count.toLocaleString("en-US").replaceAll(",", "\u202f") : "–";
const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
/** Formats seconds. */
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

/** The name of a worker without a known name. */
const unnamed = (rank) => `rank ${rank}`;
/** Removes the common prefix of names, unless a name would be empty; returns the prefix too. */
function shortened(names) {
  let length = names.length > 1 ? Math.min(...names.map((name) => name.length - 1)) : 0;
  while (length > 0 && names.some((name) => !name.startsWith(names[0].slice(0, length)))) length--;
  // Does not split a number.
  while (length > 0 && /\d/.test(names[0][length - 1])) length--;
  return { common: length > 1 ? names[0].slice(0, length) : "", rest: names.map((name) => length > 1 ? name.slice(length) : name) };
}
