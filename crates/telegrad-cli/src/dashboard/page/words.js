// How things are put into words, and words into the page.

const listOf = (value) => Array.isArray(value) ? value : [];

/** Most of what is shown stays the same from one answer to the next: only what is new is written. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
/** Gives `parent` one child for each item; children are kept, and changed by `update`. */
function fill(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, at) => update(parent.children[at], item, at));
}
/** Text whose names stand in backticks, as nodes. */
const withCode = (text) => String(text).split("`").map((part, at) => at % 2 === 1 ? el("code", {}, part) : part);

const perSecond = (value) => scaled(value, [[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]]);
const bytesPerSecond = (value) => isNumber(value) ? `${bytes(value)}/s` : "–";
const amount = (value) => scaled(value, [[1e9, "G"], [1e6, "M"], [1e4, "k"], [1, ""]]);
const clock = (seconds, hasSeconds = true) => new Date(seconds * 1e3).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: hasSeconds ? "2-digit" : undefined });
