// Formatting of values, and updates of the page.

const listOf = (value) => Array.isArray(value) ? value : [];

/** Writes a text only if it has changed: most of the page stays the same between answers. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
/** Gives `parent` one child per item; existing children are reused and changed by `update`. */
function fill(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, at) => update(parent.children[at], item, at));
}
/** Turns a text with names in backticks into nodes. */
const withCode = (text) => String(text).split("`").map((part, at) => at % 2 === 1 ? el("code", {}, part) : part);

const perSecond = (value) => scaled(value, [[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]]);
const bytesPerSecond = (value) => isNumber(value) ? `${bytes(value)}/s` : "–";
const amount = (value) => scaled(value, [[1e9, "G"], [1e6, "M"], [1e4, "k"], [1, ""]]);
const clock = (seconds, hasSeconds = true) => new Date(seconds * 1e3).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: hasSeconds ? "2-digit" : undefined });
