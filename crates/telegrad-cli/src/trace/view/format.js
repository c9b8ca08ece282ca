// Formatting of values and names, and lists shown in pieces.

/** Formats microseconds. */
const time = (micros) => span(micros / 1e6);
const percent = (share) => share > 0 && share < 0.0005 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(1)}\u00a0%`;
/** Formats a time to the nanosecond. */
const moment = (micros) => `${(micros / 1e3).toFixed(6)} ms`;
function pushTo(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value); else map.set(key, [value]);
}

/** Splits a name into the operation and the calls of other workers that it belongs to. */
function splitName(name) {
  const parts = name.split("#remote_op: ");
  return { what: parts.pop(), calls: parts };
}
/** Formats a name, with line breaks allowed only between its parts. */
function breakable(name) {
  const text = name.replaceAll(" -> ", "\u00a0→\u00a0"), parts = text.length < 32 ? [text] : text.split(/(?<=::|#)|(?=\()/);
  return parts.flatMap((part, at) => at > 0 ? [el("wbr"), part] : [part]);
}
/** A name without caller and callee. */
const plainNames = new Map();
function plainName(name) {
  if (!plainNames.has(name)) plainNames.set(name, name.replace(/\([^()]* -> [^()]*\)/g, ""));
  return plainNames.get(name);
}

/** Shows a list in pieces, with a button in `more` while items are left. */
function paged(items, size, into, more, render) {
  let from = 0;
  const show = (press) => {
    into.append(...items.slice(from, from + size).map((item, index) => render(item, from + index)));
    from += size;
    const rest = items.length - from;
    more.replaceChildren(...(rest > 0 ? [el("button", { class: "button more", onclick: show }, `Show more (${grouped(rest)} left)`)] : []));
    if (press) more.firstElementChild?.focus();
  };
  into.replaceChildren();
  show();
}
